"""A seat whose answers come from elsewhere: through `Environment.submit`, by way of `envs.transport`.

Here nobody decides. The deadline of each decision is the environment's own, as for anybody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from envs.events import Action, ActionSpec, Event


class Remote:
    """Keeps the seat taken until the episode ends."""

    async def decide(self, context: Sequence[Event], actions: Sequence[ActionSpec]) -> Action:
        await asyncio.get_running_loop().create_future()
        raise AssertionError("nothing ends this wait but its cancellation")
