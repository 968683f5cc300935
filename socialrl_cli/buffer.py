"""The buffer between play and learning: a directory of Parquet shards with one schema.

One row per segment of an episode's seat; every row repeats that seat's reward, which is paid once, on the seat's last
sampled token. Rows to train on have the token columns; rows of scripted or text-only play have `messages` (JSON) and
null token columns. An episode that failed is a row with a status and an error. Times are seconds since 1970.

    shard-000001.parquet     whole: written as `.tmp`, then renamed
    shard-000002.pending     what was added since, as an Arrow stream: it survives a kill, and the next writer
                             makes a shard of it
    shard-000003.parquet.torn  not readable, set aside with a warning
    grammars.jsonl           what `call_spans` names as grammars (`grammars.py`)

Left out: event logs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from scenarios.errors import DataError, RunError
from socialrl_cli.episode_rows import TOKEN_COLUMNS, EpisodeRecord, rows
from socialrl_cli.output import warn

if TYPE_CHECKING:
    from algos.grammars import Grammar
    from algos.rows import Row

__all__ = ["SCHEMA", "BufferWriter", "EpisodeRecord", "message_rows", "read", "rows", "to_rows"]

SCHEMA_VERSION = 1
SPAN = pa.struct(
    [
        ("start", pa.int32()),
        ("end", pa.int32()),
        ("turn", pa.int32()),
        ("policy_version", pa.int64()),
        ("temperature", pa.float64()),
        ("grammar", pa.string()),
    ]
)
PROBE = pa.struct([("turn", pa.int32()), ("name", pa.string()), ("value", pa.string())])  # value: JSON
OUTCOME = pa.struct([("status", pa.string()), ("by", pa.string()), ("agreement", pa.string())])  # agreement: JSON
SCHEMA = pa.schema(
    [
        ("schema_version", pa.int32()),
        ("run", pa.string()),
        ("episode_id", pa.string()),
        ("session_key", pa.string()),
        ("kind", pa.string()),
        ("env", pa.string()),
        ("scenario_id", pa.string()),
        ("world", pa.int32()),
        ("pair_id", pa.string()),
        ("group_id", pa.string()),
        ("sample", pa.int32()),
        ("split", pa.string()),
        ("seat", pa.string()),
        ("agent", pa.string()),
        ("opponent", pa.string()),
        ("policy_version", pa.int64()),
        ("segment", pa.int32()),
        ("n_segments", pa.int32()),
        ("token_ids", pa.list_(pa.int32())),
        ("prompt_len", pa.int32()),
        ("loss_mask", pa.list_(pa.bool_())),
        ("behaviour_logprobs", pa.list_(pa.float32())),
        ("call_spans", pa.list_(SPAN)),
        ("turn_probes", pa.list_(PROBE)),
        ("reward", pa.float64()),
        ("reward_parts", pa.map_(pa.string(), pa.float64())),
        ("outcome", OUTCOME),
        ("utility", pa.float64()),
        ("messages", pa.string()),
        ("tools", pa.string()),
        ("status", pa.string()),
        ("error", pa.string()),
        ("started_at", pa.float64()),
        ("finished_at", pa.float64()),
    ],
    metadata={"socialrl_schema_version": str(SCHEMA_VERSION)},
)


def to_table(some: Sequence[Mapping[str, Any]]) -> pa.Table:
    columns = []
    for column in SCHEMA:
        values = [SCHEMA_VERSION if column.name == "schema_version" else row[column.name] for row in some]
        arrays = column.name in TOKEN_COLUMNS
        columns.append(_lists(values, column.type) if arrays else pa.array(values, column.type))
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _lists(values: Sequence[Any], kind: pa.ListType) -> pa.ListArray:
    """A list column of numpy arrays, without a Python object for each entry."""
    flat = [pa.array(value, kind.value_type) for value in values if value is not None]
    starts = np.cumsum([0] + [0 if value is None else len(value) for value in values])
    offsets = pa.array(starts, pa.int32(), mask=np.array([value is None for value in values] + [False]))
    return pa.ListArray.from_arrays(offsets, pa.concat_arrays(flat) if flat else pa.array([], kind.value_type), kind)


class BufferWriter:
    """Adds rows to `directory`. What `add` has returned from is not lost when the process is killed."""

    def __init__(self, directory: Path | str, rows_per_shard: int = 1024) -> None:
        self.directory, self.rows_per_shard = Path(directory), rows_per_shard
        self.rows_written = 0
        self._tables: list[pa.Table] = []
        self._stream: tuple[Any, Any] | None = None
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            for left in self.directory.glob("*.tmp"):
                left.unlink()
            for left in sorted(self.directory.glob("*.pending")):
                self._recover(left)
        except OSError as error:
            raise _disk(self.directory, error) from error

    def add(self, some: Iterable[Mapping[str, Any]]) -> None:
        """Add the rows of one episode (or more); they stay together in one shard."""
        table = to_table(list(some))
        if not len(table):
            return
        try:
            if self._stream is None:
                sink = pa.OSFile(str(self._path(".pending")), "wb")
                self._stream = sink, pa.ipc.new_stream(sink, SCHEMA)
            self._stream[1].write_table(table)
            self._stream[0].flush()
        except OSError as error:
            raise _disk(self.directory, error) from error
        self._tables.append(table)
        self.rows_written += len(table)
        if sum(map(len, self._tables)) >= self.rows_per_shard:
            self.flush()

    def flush(self) -> None:
        """Make a shard of what was added since the last one."""
        if self._stream is None:
            return
        pending, shard = self._path(".pending"), self._path(".parquet")
        try:
            write_shard(pa.concat_tables(self._tables), shard)
            self._end_stream()
            pending.unlink()
        except OSError as error:
            raise _disk(self.directory, error) from error
        self._tables = []

    def close(self) -> None:
        self.flush()

    def __enter__(self) -> BufferWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _path(self, suffix: str) -> Path:
        """Of the next shard; its number is past every name in the directory."""
        if not self._tables and suffix == ".pending":
            numbers = [int(path.name[6:12]) for path in self.directory.glob("shard-[0-9]*.*")]
            self._number = max(numbers, default=0) + 1
        return self.directory / f"shard-{self._number:06d}{suffix}"

    def _end_stream(self) -> None:
        if self._stream is not None:
            for part in reversed(self._stream):
                part.close()
        self._stream = None

    def _recover(self, pending: Path) -> None:
        shard = pending.with_suffix(".parquet")
        if not shard.exists():
            table = _read_pending(pending)
            if len(table):
                write_shard(table, shard)
        pending.unlink()


def write_shard(table: pa.Table, path: Path) -> None:
    """Whole or not at all: a temporary name, then a rename."""
    temporary = path.with_suffix(".tmp")
    pq.write_table(table, temporary, compression="zstd")
    os.replace(temporary, path)


def read(directory: Path | str, filter: pc.Expression | None = None, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of all whole shards, and those that a killed writer left pending, in the order of writing.

    `filter` is a pyarrow expression (`pc.field("env") == "dnd"`). A torn shard is renamed to `….torn` with a warning;
    a shard of another schema version is a DataError.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise DataError(f"{directory}: no such buffer directory")
    schema = SCHEMA if columns is None else pa.schema([SCHEMA.field(name) for name in columns])
    tables = [schema.empty_table()]
    names = {path.name for path in directory.iterdir()}
    for name in sorted(names):
        path = directory / name
        shard = path.with_suffix(".parquet")
        if name.endswith(".pending") and shard.name not in names:
            try:
                table = _read_pending(path)
                table = table if filter is None else table.filter(filter)
                tables.append(table if columns is None else table.select(list(columns)))
            except FileNotFoundError:  # its writer has just made a shard of it
                tables += _read_shard(shard, filter, columns)
        elif name.endswith(".parquet"):
            tables += _read_shard(path, filter, columns)
    return pa.concat_tables([table.replace_schema_metadata(SCHEMA.metadata) for table in tables])


def _read_shard(path: Path, filter: Any, columns: Sequence[str] | None) -> list[pa.Table]:
    """The shard's rows, or nothing when it is torn."""
    try:
        found = (pq.read_schema(path).metadata or {}).get(b"socialrl_schema_version")
        if found != str(SCHEMA_VERSION).encode():
            version = "none" if found is None else found.decode()
            raise DataError(f"{path}: schema version {version}, expected {SCHEMA_VERSION}; write the buffer anew")
        return [pq.read_table(path, columns=None if columns is None else list(columns), filters=filter)]
    except (pa.ArrowInvalid, OSError) as error:
        if not _is_torn(path):
            raise
        aside = path.with_name(path.name + ".torn")
        try:
            path.rename(aside)
        except OSError:
            aside = path
        reason = " ".join(str(error).split())
        warn(f"{path}: torn ({reason:.80}); set aside as {aside.name}, the whole shards are used")
        return []


def _is_torn(path: Path) -> bool:
    """Whether the file itself cannot be read, not only what was asked of it. OSError when the system says no."""
    try:
        pq.read_table(path)
    except pa.ArrowInvalid:
        return True
    except OSError as error:
        if error.errno is None:  # Arrow's own, about what the file holds
            return True
        raise
    return False


def _read_pending(path: Path) -> pa.Table:
    """The whole batches of a stream that may end anywhere."""
    batches: list[pa.RecordBatch] = []
    try:
        with pa.OSFile(str(path), "rb") as source, pa.ipc.open_stream(source) as stream:
            for batch in stream:
                batches.append(batch)
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        if path.stat().st_size:
            warn(f"{path}: its last rows are torn (left by a crash, or being written); the whole ones are used")
    return pa.Table.from_batches(batches, schema=SCHEMA)


def _disk(directory: Path, error: OSError) -> RunError:
    return RunError(
        f"{directory}: the buffer could not be written ({error.strerror or error}); free space, then resume"
    )


def to_rows(table: pa.Table, grammars: Mapping[str, Grammar] | None = None) -> list[Row]:
    """The rows to train on: played segments with tokens. Probes, and rows without tokens or reward, are left out.

    `grammars` are those of the buffer (`grammars.read`); DataError when a row names another.
    """
    from algos.rows import Row

    wanted = (pc.field("kind") == "play") & pc.field("token_ids").is_valid() & pc.field("reward").is_valid()
    table = table.filter(wanted).combine_chunks()
    out = []
    names = ("episode_id", "env", "opponent", "seat", "agent", "segment", "prompt_len", "reward", "policy_version")
    plain = table.select([*names, "group_id", "status", "call_spans"]).to_pylist()
    for number, row in enumerate(plain):
        ids, mask, logprobs = (
            np.array(table.column(name)[number].values.to_numpy(zero_copy_only=False)) for name in TOKEN_COLUMNS
        )
        temperature, spans = np.ones(len(ids), np.float32), row.pop("call_spans")
        for span in spans:
            if span["temperature"] > 0:  # greedy tokens are not trained on
                temperature[span["start"] : span["end"]] = span["temperature"]
        row |= {"token_ids": ids, "loss_mask": mask, "logprobs": logprobs, "temperature": temperature}
        try:
            constrained = [(s["start"], s["end"], (grammars or {})[s["grammar"]]) for s in spans if s["grammar"]]
        except KeyError as error:
            raise DataError(f"episode {row['episode_id']}: the grammar {error} is not beside the shards") from None
        out.append(Row(**row, grammars=tuple(constrained)))
    return out


def message_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows to distil from: those with messages, as dicts with `messages` and `tools` parsed."""
    table = table.filter((pc.field("kind") == "play") & pc.field("messages").is_valid())
    names = ("episode_id", "env", "opponent", "seat", "segment", "agent", "reward", "status", "messages", "tools")
    return [
        {**row, "messages": orjson.loads(row["messages"]), "tools": row["tools"] and orjson.loads(row["tools"])}
        for row in table.select(list(names)).to_pylist()
    ]
