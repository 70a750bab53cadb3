"""Decoded messages as Arrow tables, one per table of the store, ready for INSERT ... SELECT."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from collector.stream import Item, Key, Loss, key_of
from pbkv.events.schema import BY_NAME, Kind
from pbkv.events.wire import FLAG_NAMES, Header, Message

_TIME = pa.timestamp("us")
_SRC = pa.uint16()


@dataclass
class Batch:
    """What one transaction stores: Arrow tables by table name in `raw`, rows per kind, and how far each stream is then."""

    tables: dict[str, pa.Table] = field(default_factory=dict[str, pa.Table])
    rows: dict[str, int] = field(default_factory=dict[str, int])
    done: dict[Key, int] = field(default_factory=dict[Key, int])
    records: dict[Key, int] = field(default_factory=dict[Key, int])
    first_wall: dict[Key, int] = field(default_factory=dict[Key, int])
    names: dict[int, set[int]] = field(default_factory=dict[int, set[int]])


@dataclass
class _Part:
    src: int
    header: Header
    table: np.ndarray


def build(
    items: Sequence[Item], src_of: Callable[[Key], int], known: Callable[[int, int], bool], now_us: int, src_type: pa.DataType = _SRC
) -> Batch:
    """Arrow tables of `items`. `src_of` numbers streams; `known(src, id)` tells names that are already stored;
    `src_type` is the Arrow type of stream numbers."""
    batch = Batch()
    parts: dict[str, list[_Part]] = {}
    for item in items:
        if isinstance(item, Loss):
            batch.done[item.key] = item.last
            batch.first_wall.setdefault(item.key, now_us * 1000)
        else:
            _split(item, batch, parts, src_of)
    for kind, of_kind in parts.items():
        rows = _name_rows(of_kind, known, batch, src_type) if kind == "name" else _kind_rows(BY_NAME[kind], of_kind, src_type)
        if rows.num_rows:
            batch.tables[kind], batch.rows[kind] = rows, rows.num_rows
    _bookkeeping(batch, [i for i in items if isinstance(i, Loss)], src_of, now_us, src_type)
    return batch


def _split(message: Message, batch: Batch, parts: dict[str, list[_Part]], src_of: Callable[[Key], int]) -> None:
    header = message.header
    key = key_of(header)
    src = src_of(key)
    batch.first_wall.setdefault(key, header.wall_ns)
    if not header.flags & FLAG_NAMES:
        batch.done[key] = header.seq
        batch.records[key] = batch.records.get(key, 0) + header.records
        for kind, table in message.tables.items():
            parts.setdefault(kind, []).append(_Part(src, header, table))
    elif "name" in message.tables:
        parts.setdefault("name", []).append(_Part(src, header, message.tables["name"]))


def _position(parts: list[_Part]) -> dict[str, np.ndarray]:
    """src, seq, sched_step and t (us) of every record of `parts`."""
    counts = [len(p.table) for p in parts]
    columns: dict[str, np.ndarray] = {
        "src": np.array([p.src for p in parts], np.int64),
        "seq": np.array([p.header.seq for p in parts], np.uint64),
        "sched_step": np.array([p.header.step for p in parts], np.uint64),
        "t": np.array([p.header.wall_ns // 1000 for p in parts], np.int64),
    }
    return {name: np.repeat(values, counts) for name, values in columns.items()}


def _kind_rows(kind: Kind, parts: list[_Part], src_type: pa.DataType) -> pa.Table:
    # As bytes: putting structured arrays together field by field costs more than everything else here.
    records = np.concatenate([p.table.view(np.uint8) for p in parts]).view(kind.dtype)
    at = _position(parts)
    columns = [pa.array(at["src"], src_type), pa.array(at["seq"]), _column(records, "idx"), pa.array(at["sched_step"])]
    columns.append(pa.array(at["t"], _TIME))
    names = ["src", "seq", "idx", "sched_step", "t"]
    for f in kind.fields:
        columns.append(_column(records, f.name))
        names.append(f.name)
    return pa.Table.from_arrays(columns, names=names)


def _column(records: np.ndarray, name: str) -> pa.Array:
    values = np.ascontiguousarray(records[name])
    if values.dtype.kind == "S":
        return pa.array([v.decode(errors="replace") for v in values.tolist()], pa.string())
    return pa.array(values)


def _name_rows(parts: list[_Part], known: Callable[[int, int], bool], batch: Batch, src_type: pa.DataType) -> pa.Table:
    """Names not stored yet: (src, id) stays unique in raw.name, so a join on it never doubles a row."""
    fresh: list[_Part] = []
    for part in parts:
        seen = batch.names.setdefault(part.src, set())
        keep: list[int] = []
        for n, name_id in enumerate(part.table["id"].tolist()):
            if name_id not in seen and not known(part.src, name_id):
                seen.add(name_id)
                keep.append(n)
        if keep:
            fresh.append(_Part(part.src, part.header, part.table[keep]))
    return _kind_rows(BY_NAME["name"], fresh, src_type) if fresh else pa.table({})


def _bookkeeping(batch: Batch, losses: list[Loss], src_of: Callable[[Key], int], now_us: int, src_type: pa.DataType) -> None:
    if batch.done:
        batch.tables["high_water"] = pa.table({
            "src": pa.array([src_of(k) for k in batch.done], src_type),
            "seq": pa.array(list(batch.done.values()), pa.uint64()),
            "t": pa.array([now_us] * len(batch.done), _TIME),
            "records": pa.array([batch.records.get(k, 0) for k in batch.done], pa.uint64()),
        })
    if losses:
        batch.tables["loss"] = pa.table({
            "src": pa.array([src_of(loss.key) for loss in losses], src_type),
            "first_seq": pa.array([loss.first for loss in losses], pa.uint64()),
            "last_seq": pa.array([loss.last for loss in losses], pa.uint64()),
            "messages": pa.array([loss.last - loss.first + 1 for loss in losses], pa.uint64()),
            "cause": pa.array([loss.cause for loss in losses], pa.string()),
            "t": pa.array([now_us] * len(losses), _TIME),
        })
