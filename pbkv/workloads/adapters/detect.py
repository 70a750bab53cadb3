"""Which adapter a file or folder needs, told by what is in it."""

from pathlib import Path
from typing import Any, cast

from pbkv.errors import UsageError
from pbkv.workloads.adapters.agent_calls import load_agent_calls
from pbkv.workloads.adapters.mooncake import load_mooncake
from pbkv.workloads.adapters.reading import files_of, parse_json, read_bytes
from pbkv.workloads.adapters.recording import is_recording, load_recording
from pbkv.workloads.adapters.weka import load_weka
from pbkv.workloads.adapters.who_and_when import load_conversations
from pbkv.workloads.layouts import LayoutName
from pbkv.workloads.tokens import TokenWorkload


def load_workload(path: str | Path, *, layout: LayoutName = "group", max_calls: int = 0) -> TokenWorkload:
    """A table of agent calls (.parquet), a recording or Mooncake requests (.jsonl), a file or folder of sessions or conversations (.json).

    `layout` and `max_calls` apply to tables and conversations, which record who spoke but no prompts. Raises UsageError.
    """
    place = Path(path)
    if not place.exists():
        raise UsageError(f"trace {str(path)!r} does not exist; expected a .parquet, .jsonl or .json file or a folder of .json files")
    if place.suffix == ".parquet":
        return load_agent_calls(place, layout=layout, max_calls=max_calls)
    if place.suffix == ".jsonl":
        if is_recording(place):
            return load_recording(place, layout=layout, max_calls=max_calls)
        return load_mooncake(place)
    first = files_of(place, ".json")[0]
    document = parse_json(f"trace file {str(first)!r}", read_bytes(first))
    fields = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    if "hash_id_scope" in fields or "requests" in fields:
        return load_weka(place)
    return load_conversations(place, layout=layout, max_calls=max_calls)
