"""Kept results: what is written is read again, names are safe, files are bounded and their damage is one sentence."""

import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbkv.errors import UsageError
from pbkv.whatif import results
from pbkv.whatif.forecast import Estimate, Residual
from pbkv.whatif.question import About, Answer, Found, Present
from pbkv.whatif.results import Result, Results, result_of
from pbkv.whatif.setting import Setting

ABOUT = About("log", 1234, 600.0, "2026-03-01T12:00:00", 7, {"policy": "he", "gamma": 0.8, "k": 3}, 60_000, 0)
PRESENT = Present({"hit": 0.5}, (Residual("hit", 0.5, 0.51),))
CELLS = (
    Found(Setting(policy="lru"), {"hit": Estimate(0.4, 0.39, 0.41, 0.5), "moved_bytes": Estimate(1e10, 9e9, 1.1e10, 1e10)}),
    Found(Setting(gamma=0.5, k=2, device_tokens=30_000), refused="device_tokens = 1: too few"),
)
RESULT = Result(
    "grpc://127.0.0.1:5615", "2026-03-01T12:00:01+00:00", {"policy": "lru,he"}, 3, ABOUT, PRESENT, CELLS, "ttft_p95<800ms", "moved_bytes",
)


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    kept = Results(tmp_path / "new" / "folder")
    id_ = kept.keep(RESULT)
    assert kept.get(id_) == RESULT and RESULT.stopped
    assert kept.newest() == [(id_, RESULT)]
    assert not list((tmp_path / "new" / "folder").glob("*.part"))


def test_the_name_is_of_the_content_not_of_the_time(tmp_path: Path) -> None:
    kept = Results(tmp_path)
    assert kept.keep(RESULT) == kept.keep(replace(RESULT, made_at="later")) != kept.keep(replace(RESULT, under=""))
    assert len(kept.newest()) == 2


numbers = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.builds(
    Found, st.builds(Setting, st.sampled_from([None, "lru", "he"]), st.none() | st.floats(0, 1), st.none() | st.integers(1, 8)),
    st.dictionaries(st.sampled_from(["hit", "ttft_p95"]), st.builds(Estimate, numbers, numbers, numbers, numbers)), st.text(max_size=30),
), max_size=5), st.text(max_size=20))
def test_any_cells_survive(tmp_path_factory: pytest.TempPathFactory, cells: list[Found], source: str) -> None:
    kept = Results(tmp_path_factory.mktemp("any"))
    result = replace(RESULT, source=source, cells=tuple(cells))
    assert kept.get(kept.keep(result)) == result


@pytest.mark.parametrize("id_", ["", "..", "../../etc/passwd", "ABCDEF012345", "0123456789abc", "0123456789a/", "x" * 1000])
def test_a_name_that_is_none_never_reaches_the_disk(tmp_path: Path, id_: str) -> None:
    with pytest.raises(UsageError, match="twelve hexadecimal digits"):
        Results(tmp_path).get(id_)


def test_an_unknown_result(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="0123456789ab: not kept here"):
        Results(tmp_path / "absent").get("0123456789ab")
    assert Results(tmp_path / "absent").newest() == []


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b'{"source": 5}'])
def test_a_damaged_file_is_named_and_left_out_of_the_list(tmp_path: Path, content: bytes) -> None:
    kept = Results(tmp_path)
    good = kept.keep(RESULT)
    (tmp_path / "0123456789ab.json").write_bytes(content)
    (tmp_path / "notes.json").write_bytes(b"not ours")
    with pytest.raises(UsageError, match="damaged, or of another release"):
        kept.get("0123456789ab")
    assert [id_ for id_, _ in kept.newest()] == [good]


def test_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "MOST_RESULTS", 2)
    kept = Results(tmp_path)
    ids = []
    for n in range(4):
        ids.append(kept.keep(replace(RESULT, source=str(n))))
        os.utime(tmp_path / f"{ids[-1]}.json", (n, n))
    assert [id_ for id_, _ in kept.newest()] == [ids[3], ids[2]]
    assert [id_ for id_, _ in kept.newest(1)] == [ids[3]]


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Results(tmp_path)
    id_ = kept.keep(RESULT)
    monkeypatch.setattr(results, "MOST_BYTES", 100)
    with pytest.raises(UsageError, match="expected up to 100"):
        kept.keep(RESULT)
    with pytest.raises(UsageError, match="larger than any result"):
        kept.get(id_)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="PBKV_STATE_DIR"):
        Results(tmp_path / "file" / "below").keep(RESULT)


def test_a_result_of_an_answer_has_its_cells_in_order() -> None:
    answer = Answer((Setting(k=1), Setting(k=2), Setting(k=3)), ABOUT, PRESENT, {2: CELLS[1], 0: CELLS[0]}, left_s=math.nan)
    result = result_of(answer, "a.duckdb", {"k": "1:3:1"}, under="", best="hit")
    assert result.cells == CELLS and result.asked == 3 and result.stopped and result.made_at.endswith("+00:00")
