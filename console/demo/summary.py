"""What a demo run put into the store, as one JSON object."""

from typing import Any

from collector.reader import Reader
from pbkv.events.schema import EVENT_KINDS

_COUNTS = " UNION ALL ".join(f"SELECT '{kind}' AS kind, count(*) AS n FROM {kind} WHERE epoch = $epoch" for kind in EVENT_KINDS)
_NUMBERS = """
SELECT
    (SELECT count(*) FROM loss WHERE epoch = $epoch) AS gaps,
    (SELECT coalesce(sum(retired_device_tokens + retired_host_tokens), 0)::BIGINT FROM workflow
     WHERE epoch = $epoch AND event = 'retire') AS retired_tokens,
    (SELECT count(*) FROM prefetch WHERE epoch = $epoch AND phase = 'decision' AND result = 'issued') AS prefetches_issued,
    (SELECT sum(device_hit_tokens) / sum(prompt_tokens) FROM call WHERE epoch = $epoch) AS device,
    (SELECT sum(host_hit_tokens) / sum(prompt_tokens) FROM call WHERE epoch = $epoch) AS host,
    (SELECT count(*) FROM knob WHERE epoch = $epoch) AS knob_changes
"""


def summarise(reader: Reader, epoch: int) -> dict[str, Any]:
    """{"events": {kind: count}, "gaps", "retired_tokens", "prefetches_issued", "hit_rate": {"device", "host"}, "knob_changes"}.

    `epoch` is the server start that is meant; a store may hold others. Hit rates are fractions of all prompt tokens, None without calls.
    """
    counts = reader.sql(_COUNTS, {"epoch": epoch}).to_pylist()
    numbers = reader.sql(_NUMBERS, {"epoch": epoch}).to_pylist()[0]
    return {
        "events": {row["kind"]: row["n"] for row in counts},
        "gaps": numbers["gaps"],
        "retired_tokens": numbers["retired_tokens"],
        "prefetches_issued": numbers["prefetches_issued"],
        "hit_rate": {tier: None if numbers[tier] is None else round(numbers[tier], 4) for tier in ("device", "host")},
        "knob_changes": numbers["knob_changes"],
    }


def empty_kinds(summary: dict[str, Any]) -> list[str]:
    """Kinds of events that the run did not produce."""
    return [kind for kind, count in summary["events"].items() if not count]
