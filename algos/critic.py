"""Who predicts the return: a model of its own with a scalar head, or a linear head on the actor's states.

Both give V (K,) in float32, read at the position that predicts the actor token. Heads start at zero, so an untrained
critic says 0 everywhere and draws no random number.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from algos.packing import Pack, states

HEAD_FILE = "value_head.pt"


class ValueHead(nn.Module):
    """A linear head on detached states of the actor, (K, H) → (K,)."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden_size, 1)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, features: Tensor) -> Tensor:
        return self.linear(features.detach().float())[:, 0]


class Critic(nn.Module):
    """A backbone without output layer, and a scalar head that trains it."""

    def __init__(self, backbone: Any) -> None:
        super().__init__()
        self.backbone = backbone
        self.linear = nn.Linear(backbone.config.hidden_size, 1)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, pack: Pack) -> Tensor:
        features = states(self.backbone, pack).float()
        with torch.autocast(features.device.type, enabled=False):  # the backbone may compute in less, a value does not
            return self.linear(features)[:, 0].clone()  # a sharded module gives no view away


def save_head(critic: ValueHead | Critic, folder: Path) -> None:
    torch.save(critic.linear.state_dict(), folder / HEAD_FILE)


def load_head(critic: ValueHead | Critic, folder: Path) -> bool:
    """Take the head from a folder that has one; says whether it did."""
    file = folder / HEAD_FILE
    if file.is_file():
        critic.linear.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    return file.is_file()
