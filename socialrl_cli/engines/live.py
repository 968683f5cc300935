"""Live weights of a vLLM server: new versions of the policy while requests run.

An adapter of version N is loaded under a name that no adapter had before (a reload under an old name would answer from
the old one's cached states), requests that begin afterwards use it, and an older one is unloaded after the last
request that leased it. Its files go one sync later: the server may still read them. Full weights are reloaded in
place from a folder, so new requests wait meanwhile and those under way are waited for: every answer is one version's.

A version's files are written to a temporary name and renamed when whole. After a restart of the server `restore`
brings back what it had.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from scenarios.errors import EngineError, RunError
from socialrl_cli.engines.probing import LOAD, RESET, RPC, UNLOAD
from socialrl_cli.engines.remote import Upstream

Save = Callable[[Path], None]  # writes the weights as they are now into an empty folder


@dataclass(slots=True)
class Loaded:
    """Weights that a server answers with: the model's name in requests, their version, who uses them."""

    name: str
    version: int
    folder: Path | None = None
    leases: int = 0


class Weights:
    """The current weights of some servers that all have the same; these never change. `leased` gives them out."""

    def __init__(self, servers: Sequence[Upstream], name: str, current: Loaded, *, timeout_s: float) -> None:
        self.servers, self.name, self.current, self.timeout_s = servers, name, current, timeout_s
        self.salt = secrets.token_hex(3)  # another run, or this one before its resume, may have had the same versions
        self._changed = asyncio.Event()

    @contextlib.asynccontextmanager
    async def leased(self) -> AsyncIterator[Loaded]:
        """Weights for one request, which stay loaded until it is answered."""
        held = await self._take()
        held.leases += 1
        try:
            yield held
        finally:
            held.leases -= 1
            self._changed.set()
            self._released()

    async def _until(self, true: Callable[[], bool]) -> None:
        """Wait for something that a release or a new version brings about."""
        while not true():
            self._changed.clear()
            await self._changed.wait()

    async def _take(self) -> Loaded:
        return self.current

    def _released(self) -> None:
        """A request is over."""

    async def publish(self, version: int, save: Save, folder: Path) -> None:
        """Write the weights under `folder` and make them `version`. Raises EngineError, also after `timeout_s`."""
        target = folder / f"policy-v{version}-{self.salt}"
        try:
            async with asyncio.timeout(self.timeout_s):
                await asyncio.to_thread(write, target, save)
                await self._load(version, target)
        except TimeoutError as error:
            raise EngineError(
                f"{self.name}: version {version} was not taken over within {self.timeout_s:g} s; {self._waiting()}"
            ) from error

    async def _load(self, version: int, folder: Path) -> None:
        raise EngineError(f"{self.name}: these weights cannot be changed")

    def _waiting(self) -> str:
        return f"{self.current.leases} requests of version {self.current.version} are under way"

    async def restore(self) -> None:
        """Bring a server that was started anew to what it had."""

    async def _everywhere(self, path: str, body: dict[str, object]) -> None:
        await asyncio.gather(*(server.post(path, body, timeout_s=self.timeout_s) for server in self.servers))


class Adapters(Weights):
    """LoRA adapters; at most `most` of them are loaded at once."""

    def __init__(
        self, servers: Sequence[Upstream], name: str, current: Loaded, *, timeout_s: float, most: int = 4
    ) -> None:
        super().__init__(servers, name, current, timeout_s=timeout_s)
        self.most = most
        self._live: list[Loaded] = []
        self._gone: list[Path] = []  # unloaded; their files are not needed after the next sync
        self._tasks: set[asyncio.Task[None]] = set()

    def adopt(self, loaded: Loaded) -> None:
        """Answer with an adapter that the servers have."""
        self._live.append(loaded)
        self.current = loaded

    async def _load(self, version: int, folder: Path) -> None:
        swept, self._gone = self._gone, []
        await self._until(lambda: len(self._live) < self.most)
        new = Loaded(folder.name, version, folder)
        await self._everywhere(LOAD, {"lora_name": new.name, "lora_path": str(folder.absolute())})
        self._live.append(new)
        self.current = new
        for old in swept:
            shutil.rmtree(old, ignore_errors=True)
        await self._unload_unused()

    async def _unload_unused(self) -> None:
        for old in [one for one in self._live if one is not self.current and not one.leases]:
            self._live.remove(old)
            await self._everywhere(UNLOAD, {"lora_name": old.name})
            assert old.folder is not None
            self._gone.append(old.folder)
        self._changed.set()

    def _released(self) -> None:
        if any(one is not self.current and not one.leases for one in self._live):
            task = asyncio.ensure_future(self._unload_unused())
            self._tasks.add(task)
            task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # a server that is gone has unloaded everything

    def _waiting(self) -> str:
        held = ", ".join(f"{one.leases} of version {one.version}" for one in self._live if one.leases)
        return f"{len(self._live)} of {self.most} adapters are loaded" + (
            f", requests under way: {held}" if held else ""
        )

    async def restore(self) -> None:
        for one in self._live:
            await self._everywhere(LOAD, {"lora_name": one.name, "lora_path": str(one.folder)})


class Whole(Weights):
    """Full weights, reloaded in place from a folder."""

    def __init__(self, servers: Sequence[Upstream], name: str, current: Loaded, *, timeout_s: float) -> None:
        super().__init__(servers, name, current, timeout_s=timeout_s)
        self._closed = False  # new requests wait

    async def _take(self) -> Loaded:
        await self._until(lambda: not self._closed)
        return self.current

    async def _load(self, version: int, folder: Path) -> None:
        self._closed = True
        try:
            await self._until(lambda: not self.current.leases)
            old = self.current
            await self._reload(folder)
            self.current = Loaded(old.name, version, folder)
            if old.folder is not None:
                shutil.rmtree(old.folder, ignore_errors=True)
        finally:
            self._closed = False
            self._changed.set()

    async def _reload(self, folder: Path) -> None:
        await self._everywhere(RPC, {"method": "reload_weights", "kwargs": {"weights_path": str(folder.absolute())}})
        await self._everywhere(RESET, {})

    async def restore(self) -> None:
        if self.current.folder is not None:
            await self._reload(self.current.folder)


def write(target: Path, save: Save) -> None:
    """Fill `target`, which has its name only when it is whole. Raises RunError."""
    new = target.with_name(f".{target.name}")
    shutil.rmtree(new, ignore_errors=True)
    try:
        new.mkdir(parents=True)
        save(new)
        new.rename(target)
    except OSError as error:
        raise RunError(f"{target}: the weights cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
