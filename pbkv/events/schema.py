"""The one table of event kinds. The wire format, the DuckDB tables and docs/events.md are all made from it.

A record is a fixed-size packed little-endian struct. Every record starts with `idx`, its position among the
records of its message, so that (server, epoch, rank, seq, idx) orders all events of all kinds.
Strings never stand in a record: they go once as a `name` record and are ids (`id:<namespace>`) afterwards.
"""

import hashlib
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from struct import Struct

import numpy as np

#: Layout of the message header and of sections; changes only when `wire.py` does.
FORMAT_VERSION = 1
#: Version of the tables below; the collector refuses a database written by a newer one.
SCHEMA_VERSION = 2
#: Bytes of UTF-8 in a name record; longer names are cut and marked with a digest by the writer.
NAME_BYTES = 120

_STRUCT_CODES = {
    "u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i64": "q", "f32": "f", "f64": "d", f"s{NAME_BYTES}": f"{NAME_BYTES}s",
}
_NUMPY_CODES = {
    "u8": "<u1", "u16": "<u2", "u32": "<u4", "u64": "<u8", "i64": "<i8", "f32": "<f4", "f64": "<f8", f"s{NAME_BYTES}": f"S{NAME_BYTES}",
}
_SQL_TYPES = {
    "u8": "UTINYINT", "u16": "USMALLINT", "u32": "UINTEGER", "u64": "UBIGINT", "i64": "BIGINT", "f32": "FLOAT", "f64": "DOUBLE",
    f"s{NAME_BYTES}": "VARCHAR",
}


class Namespace(IntEnum):
    """What a name id stands for. Ids are unique across namespaces within one server epoch; 0 is "none"."""

    WORKFLOW = 1
    AGENT = 2
    KNOB = 3  # names of knobs and settings, their values and actors as text
    CONTROL_URL = 4  # where this server answers /pbkv/knobs
    ENGINE = 5  # "sglang 0.5.23" or "embedded"
    MODEL = 6


@dataclass(frozen=True)
class Field:
    """One column. `ref` is the namespace of an id column; `values` names the codes of an enumerated u8 column."""

    name: str
    dtype: str
    meaning: str
    unit: str = ""
    ref: Namespace | None = None
    values: tuple[str, ...] = ()

    @property
    def sql_type(self) -> str:
        return _SQL_TYPES[self.dtype]

    def code(self, value: str) -> int:
        """Number that stands for `value` on the wire. Raises ValueError for an unknown one."""
        return self.values.index(value)


@dataclass(frozen=True)
class Kind:
    """One kind of record: its code on the wire, its fields (without the leading `idx`) and what a row is."""

    code: int
    name: str
    row: str
    fields: tuple[Field, ...]

    @cached_property
    def struct(self) -> Struct:
        return Struct("<I" + "".join(_STRUCT_CODES[f.dtype] for f in self.fields))

    @cached_property
    def dtype(self) -> np.dtype:
        """NumPy dtype of one record; itemsize equals struct.size."""
        return np.dtype([("idx", "<u4"), *((f.name, _NUMPY_CODES[f.dtype]) for f in self.fields)])

    def field(self, name: str) -> Field:
        return next(f for f in self.fields if f.name == name)


def _id(name: str, ref: Namespace, meaning: str) -> Field:
    return Field(name, "u32", meaning, ref=ref)


_WORKFLOW = _id("workflow", Namespace.WORKFLOW, "workflow; none = call carried no identity")
_NODE = Field("node", "u64", "radix-tree node, unique within a server epoch")
_TOKENS = Field("tokens", "u32", "tokens held by the node", "tokens")
_SCORE = Field("score", "f32", "reuse score, Eq. 2 under the knobs of that moment")
_AT = Field("at_s", "f64", "monotonic clock of the server", "s")
_TIERS = ("none", "device", "host", "both")

CALL_STATUS = ("done", "aborted")
WORKFLOW_EVENTS = ("start", "end", "retire")
REASONS = ("none", "final", "closed", "idle", "aborted")
DECISIONS = ("retired", "scored", "tie")
PHASES = ("decision", "completion", "outcome")
PREFETCH_RESULTS = (
    "issued", "skip_busy_link", "skip_no_space", "skip_budget", "skip_low_value", "skip_just_evicted", "completed",
    "used", "evicted_unused", "late",
)
MODES = ("idle", "prefill", "decode", "mixed")
SOURCES = ("manual", "revert", "expiry", "guard")

KINDS: tuple[Kind, ...] = (
    Kind(1, "call", "agent call, written when it ends", (
        _WORKFLOW,
        _id("agent", Namespace.AGENT, "agent that was called"),
        Field("step", "u32", "position of the call in its workflow, from 0"),
        Field("attributed", "u8", "1 = the request named its workflow and agent"),
        Field("final", "u8", "1 = the request said it is the workflow's last"),
        Field("status", "u8", "how the call ended", values=CALL_STATUS),
        Field("prompt_tokens", "u32", "prompt length", "tokens"),
        Field("device_hit_tokens", "u32", "prompt tokens found on the device", "tokens"),
        Field("host_hit_tokens", "u32", "prompt tokens loaded back from the host", "tokens"),
        Field("recomputed_tokens", "u32", "prompt tokens prefilled", "tokens"),
        Field("output_tokens", "u32", "tokens generated", "tokens"),
        Field("queue_ms", "f32", "arrival to admission", "ms"),
        Field("prefill_ms", "f32", "admission to first token", "ms"),
        Field("ttft_ms", "f32", "arrival to first token", "ms"),
        Field("e2e_ms", "f32", "arrival to last token", "ms"),
        Field("end_node", "u64", "tree node where the call's path ends"),
        Field("end_page", "u64", "id of the last full page of the call's prompt and output; 0 = none, or not known"),
        Field("pages", "u32", "full pages up to end_page", "pages"),
        Field("arrived_s", "f64", "arrival, monotonic clock of the server", "s"),
        Field("ended_s", "f64", "end, monotonic clock of the server", "s"),
        Field("max_tokens", "u32", "output tokens the client announced, at least those generated", "tokens"),
        Field("place", "u32", "position by order of arrival at the server, from 1; 0 = not known"),
    )),
    Kind(2, "page", "page first seen (a page forgotten by the bounded filter may be seen again)", (
        Field("page", "u64", "page id: keyed digest of the parent id and the page's tokens, without content"),
        Field("parent", "u64", "id of the page before it on the path; 0 = root"),
        Field("depth", "u32", "position on the path, from 1", "pages"),
    )),
    Kind(3, "workflow", "start, end and retirement of a workflow", (
        _WORKFLOW,
        Field("event", "u8", "what happened", values=WORKFLOW_EVENTS),
        Field("reason", "u8", "why it ended or retired", values=REASONS),
        Field("steps", "u32", "calls so far", "calls"),
        Field("retired_device_tokens", "u32", "device tokens that became retired with it", "tokens"),
        Field("retired_host_tokens", "u32", "host tokens that became retired with it", "tokens"),
        _AT,
    )),
    Kind(4, "prediction", "workflow step x horizon x likely agent", (
        _WORKFLOW,
        Field("step", "u32", "step at which the prediction was made"),
        Field("horizon", "u8", "steps ahead, from 1"),
        Field("position", "u8", "0 = most likely agent of this horizon"),
        _id("agent", Namespace.AGENT, "predicted agent; none = END is likelier than any agent"),
        Field("p", "f32", "probability of the agent at this horizon, given the workflow has not ended"),
        Field("p_end", "f32", "probability of END at this horizon, given the workflow has not ended"),
        Field("survival", "f32", "probability that the workflow has not ended before this horizon"),
        Field("predictor", "u16", "predictor version"),
        Field("latency_us", "f32", "time the predictor took", "us"),
    )),
    Kind(5, "node_score", "node, on a change of rank and in periodic snapshots", (
        _NODE,
        Field("parent", "u64", "parent node; 0 = root"),
        _TOKENS,
        Field("tier", "u8", "where the node's KV is", values=_TIERS),
        _SCORE,
        Field("value", "f32", "expected use at the next step, Eq. 1"),
        Field("live_workflows", "u16", "live workflows that touched the node"),
        Field("retired", "u8", "1 = every workflow that touched it has ended"),
        Field("last_access", "u64", "logical clock of the last access"),
        Field("hits", "u32", "calls that read the node after it was written", "calls"),
        Field("snapshot", "u8", "1 = row of a periodic snapshot, 0 = change of rank"),
        Field("page", "u64", "id of the node's last page; 0 = not named (yet)"),
        _id("workflow", Namespace.WORKFLOW, "workflow that touched it last"),
    )),
    Kind(6, "eviction", "victim", (
        _NODE,
        _TOKENS,
        Field("from_tier", "u8", "tier that lost the node", values=_TIERS),
        Field("to_tier", "u8", "tier that still holds it; none = dropped", values=_TIERS),
        Field("decision", "u8", "why it was chosen: retired, lowest score, or recency among equal scores", values=DECISIONS),
        _SCORE,
        Field("age_ms", "f32", "since the node was created", "ms"),
        Field("idle_ms", "f32", "since its last access", "ms"),
        Field("reuse", "u32", "calls that read it after it was written", "calls"),
        Field("leaves", "u32", "candidates considered", "nodes"),
        Field("decision_ns", "u32", "time to choose it", "ns"),
        _id("workflow", Namespace.WORKFLOW, "workflow that touched it last"),
    )),
    Kind(7, "prefetch", "decision, completion and outcome of a prefetch", (
        Field("prefetch", "u32", "joins the rows of one prefetch; 0 = skipped"),
        Field("phase", "u8", "which of its rows", values=PHASES),
        Field("result", "u8", "what came of it", values=PREFETCH_RESULTS),
        _NODE,
        _TOKENS,
        Field("bytes", "u64", "KV bytes moved or to be moved", "bytes"),
        Field("value", "f32", "expected use at the next step, Eq. 1"),
        _id("workflow", Namespace.WORKFLOW, "live workflow with the largest share of the value"),
    )),
    Kind(8, "pcie_window", "idle window of the host-device link (pure decode, no copy in flight)", (
        Field("start_ns", "u64", "monotonic clock at the start", "ns"),
        Field("length_us", "f32", "duration", "us"),
        Field("capacity_bytes", "u64", "bytes the link could have moved in it", "bytes"),
        Field("h2d_bytes", "u64", "bytes moved host to device in it", "bytes"),
        Field("d2h_bytes", "u64", "bytes moved device to host in it", "bytes"),
    )),
    Kind(9, "occupancy", "sampled step", (
        Field("device_free", "u32", "unallocated", "tokens"),
        Field("device_active", "u32", "cached, touched by a live workflow or by unattributed calls", "tokens"),
        Field("device_retired", "u32", "cached, every workflow that touched it has ended", "tokens"),
        Field("device_locked", "u32", "held by running calls and copies", "tokens"),
        Field("host_free", "u32", "unallocated", "tokens"),
        Field("host_used", "u32", "copies of active nodes", "tokens"),
        Field("host_retired", "u32", "copies of retired nodes", "tokens"),
        Field("leaves", "u32", "evictable device leaves", "nodes"),
        Field("running", "u32", "running requests"),
        Field("waiting", "u32", "waiting requests"),
        Field("workflows", "u32", "live workflows"),
    )),
    Kind(10, "batch", "scheduler step that ran a batch", (
        Field("mode", "u8", "what the batch did", values=MODES),
        Field("requests", "u32", "requests in the batch"),
        Field("tokens", "u32", "tokens computed", "tokens"),
        Field("duration_us", "f32", "how long the step took", "us"),
    )),
    Kind(11, "knob", "applied change", (
        Field("version", "u32", "knob version after the change"),
        _id("name", Namespace.KNOB, "knob"),
        _id("old", Namespace.KNOB, "value before, as text"),
        _id("new", Namespace.KNOB, "value after, as text"),
        _id("actor", Namespace.KNOB, "who asked"),
        Field("source", "u8", "what caused it", values=SOURCES),
        _id("reason", Namespace.KNOB, "why, in the words of the actor"),
        _AT,
        Field("arrivals", "u32", "place of the newest call that had arrived before; 0 = none, or not known"),
    )),
    Kind(12, "name", "string behind an id", (
        Field("id", "u32", "id, unique within a server epoch"),
        Field("namespace", "u8", "what it names", values=("none", *(n.name.lower() for n in Namespace))),
        Field("text", f"s{NAME_BYTES}", "UTF-8, zero padded"),
    )),
    Kind(13, "setting", "fact about the server, at its start and once a minute", (
        _id("name", Namespace.KNOB, "page_size, device_tokens, timing.prefill_base_s, knob.gamma, ..."),
        _id("value", Namespace.KNOB, "value as text; numbers read back exactly"),
        _AT,
    )),
)

BY_NAME: dict[str, Kind] = {k.name: k for k in KINDS}
BY_CODE: dict[int, Kind] = {k.code: k for k in KINDS}
#: The twelve kinds an operator asks about; `name` only serves them.
EVENT_KINDS: tuple[str, ...] = tuple(k.name for k in KINDS if k.name != "name")


def manifest() -> dict[str, object]:
    """The schema as plain data, as served by GET /pbkv/schema."""
    return {
        "format": FORMAT_VERSION,
        "schema": SCHEMA_VERSION,
        "digest": DIGEST.hex(),
        "kinds": {
            k.name: {
                "code": k.code,
                "row": k.row,
                "fields": [
                    {"name": f.name, "dtype": f.dtype, "unit": f.unit, "meaning": f.meaning,
                     "names": f.ref.name.lower() if f.ref else None, "values": list(f.values)}
                    for f in k.fields
                ],
            }
            for k in KINDS
        },
    }


def _digest() -> bytes:
    shape = [(k.code, k.name, [(f.name, f.dtype, f.ref, f.values) for f in k.fields]) for k in KINDS]
    return hashlib.blake2b(repr((FORMAT_VERSION, shape)).encode(), digest_size=8).digest()


#: Eight bytes over names, dtypes and codes (not over meanings). A message with another digest cannot be decoded here.
DIGEST: bytes = _digest()
