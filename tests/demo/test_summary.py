"""The headless summary, from a file written by the real store."""

from pathlib import Path
from typing import Any

import pytest

from collector.client import open as open_source
from console.demo.headless import judge
from console.demo.summary import empty_kinds, summarise
from pbkv.errors import PbkvError
from pbkv.events.schema import EVENT_KINDS
from tests.support.stream import fill

EPOCH = 1_700_000_000_000_000_000


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    db = tmp_path_factory.mktemp("db") / "e.duckdb"
    fill(db, 60, server="one", epoch=EPOCH)
    return db


def summary_of(db: Path, epoch: int = EPOCH) -> dict[str, Any]:
    with open_source(str(db)) as reader:
        return summarise(reader, epoch)


def test_counts_agree_with_the_store(recorded: Path) -> None:
    summary = summary_of(recorded)
    assert list(summary) == ["events", "gaps", "retired_tokens", "prefetches_issued", "hit_rate", "knob_changes"]
    assert tuple(summary["events"]) == EVENT_KINDS
    with open_source(str(recorded)) as reader:
        rows = reader.status()["rows"]
        retired = reader.sql("SELECT sum(retired_device_tokens) + sum(retired_host_tokens) AS n FROM workflow").to_pylist()[0]["n"]
        hits = reader.sql("SELECT sum(device_hit_tokens) AS d, sum(host_hit_tokens) AS h, sum(prompt_tokens) AS p FROM call").to_pylist()[0]
    assert summary["events"] == {kind: rows[kind] for kind in EVENT_KINDS}
    assert summary["retired_tokens"] == retired > 0
    assert summary["hit_rate"] == {"device": round(float(hits["d"] / hits["p"]), 4), "host": round(float(hits["h"] / hits["p"]), 4)}
    assert summary["knob_changes"] == rows["knob"]
    assert summary["gaps"] == 0


def test_only_the_epoch_that_is_meant_counts(recorded: Path, tmp_path: Path) -> None:
    assert set(summary_of(recorded, EPOCH + 1)["events"].values()) == {0}
    assert summary_of(recorded, EPOCH + 1)["hit_rate"] == {"device": None, "host": None}


def test_a_store_with_two_server_starts_keeps_them_apart(tmp_path: Path) -> None:
    db = tmp_path / "two.duckdb"
    fill(db, 20, server="one", epoch=EPOCH)
    first = summary_of(db)
    fill(db, 40, server="one", epoch=EPOCH + 5)
    assert summary_of(db) == first
    assert summary_of(db, EPOCH + 5)["events"]["call"] > first["events"]["call"]


def good() -> dict[str, Any]:
    return {
        "events": dict.fromkeys(EVENT_KINDS, 3), "gaps": 0, "retired_tokens": 10, "prefetches_issued": 2,
        "hit_rate": {"device": 0.5, "host": 0.1}, "knob_changes": 1,
    }


def test_good_run_is_not_complained_about() -> None:
    judge(good())


def test_empty_streams_are_named() -> None:
    bad = good()
    bad["events"]["knob"] = bad["events"]["eviction"] = 0
    assert empty_kinds(bad) == [k for k in EVENT_KINDS if k in {"knob", "eviction"}]
    with pytest.raises(PbkvError, match="no event of kind eviction, knob") as caught:
        judge(bad)
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [({"gaps": 2}, "2 gaps"), ({"retired_tokens": 0}, "no tokens were retired"), ({"prefetches_issued": 0}, "no prefetch was issued")],
)
def test_each_other_shortcoming_is_named(change: dict[str, int], says: str) -> None:
    with pytest.raises(PbkvError, match=says):
        judge({**good(), **change})
