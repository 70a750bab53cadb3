"""Cells, their names and the store of their results."""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbkv.bench.cell import BLIND, Cell, Source
from pbkv.bench.cellcache import CellCache, depends_on, source_digest
from pbkv.errors import UsageError
from tests.bench.small import small

OTHER: dict[str, Any] = {
    "source": Source("swe"), "seed": 1, "workflows": 13, "warm": 7, "concurrency": 13, "stagger_s": 1.0, "device_tokens": 200_000,
    "host_tokens": 64_000, "page_size": 16, "max_running": 9, "chunk_tokens": 4096, "write_policy": "write_back", "replay": True,
    "timing": "qwen3-14b@h100/1", "link_bytes_per_s": 1e9, "link_share": 0.5, "policy": "first_use", "parts": ("hold",),
    "predictor": "bayes", "noise": 0.1, "gamma": 0.5, "k": 2, "prefetch": "conservative", "host_order": "score",
}


def test_every_setting_is_part_of_the_name() -> None:
    base = small(policy="he", host_tokens=100_000, prefetch="aggressive")
    assert OTHER.keys() == {field.name for field in fields(Cell)}
    names = {replace(base, **{name: value}).key("d") for name, value in OTHER.items()}
    assert len(names) == len(OTHER) and base.key("d") not in names
    assert base.key("d") != base.key("e")
    assert base.key("d") == replace(base).key("d")


@pytest.mark.parametrize("policy", BLIND)
def test_what_a_blind_policy_does_not_read_does_not_matter(policy: str) -> None:
    base = small(policy=policy)
    assert replace(base, predictor="perfect", noise=0.3, gamma=0.1, k=7).key("d") == base.key("d")


def test_prefetch_makes_predictions_matter() -> None:
    base = small(policy="lae", host_tokens=100_000, prefetch="conservative")
    assert replace(base, predictor="perfect").key("d") != base.key("d")


def test_without_a_host_tier_the_link_does_not_matter() -> None:
    base = small(policy="he")
    assert replace(base, prefetch="aggressive", host_order="score", link_bytes_per_s=1.0, link_share=0.1).key("d") == base.key("d")


def test_results_are_kept_until_the_cell_differs(tmp_path: Path) -> None:
    cache = CellCache(tmp_path / "cells")
    cell = small(policy="he")
    assert cache.get(cell) is None
    cache.put(cell, {"hit": 12.5, "calls": 3})
    assert CellCache(tmp_path / "cells").get(cell) == {"hit": 12.5, "calls": 3}
    assert cache.get(replace(cell, seed=1)) is None
    assert not list(tmp_path.rglob("*.part"))


JSON = st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@given(st.binary(max_size=50) | JSON.map(lambda value: json.dumps(value).encode()))
def test_a_damaged_result_counts_as_none(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    cache = CellCache(tmp_path_factory.mktemp("cells"))
    cell = small()
    cache.put(cell, {"hit": 1.0})
    cache.path(cell).write_bytes(raw)
    found = cache.get(cell)
    assert found is None or all(isinstance(value, int | float) for value in found.values())


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cell folder .*file.*--cells"):
        CellCache(tmp_path / "file")


def test_the_digest_follows_the_source(tmp_path: Path) -> None:
    (tmp_path / "engine" / "server").mkdir(parents=True)
    (tmp_path / "engine" / "a.py").write_text("x = 1\n")
    (tmp_path / "engine" / "server" / "app.py").write_text("y = 1\n")
    (tmp_path / "one.py").write_text("z = 1\n")
    before = source_digest(("engine", "one.py"), tmp_path)
    (tmp_path / "engine" / "server" / "app.py").write_text("y = 2\n")
    assert source_digest(("engine", "one.py"), tmp_path) == before, "what serves HTTP changes no result"
    (tmp_path / "engine" / "a.py").write_text("x = 2\n")
    after = source_digest(("engine", "one.py"), tmp_path)
    assert after != before
    (tmp_path / "one.py").write_text("z = 2\n")
    assert source_digest(("engine", "one.py"), tmp_path) not in (before, after)
    (tmp_path / "engine" / "b.py").write_text("")
    assert source_digest(("engine",), tmp_path) != source_digest(("engine", "one.py"), tmp_path)


def test_a_policys_results_depend_on_its_own_file_alone() -> None:
    assert "eviction/first_use.py" in depends_on(small(policy="first_use"))
    assert not [p for p in depends_on(small(policy="lru")) if "first_use" in p or "markov" in p]
    assert "predictor/noisy.py" in depends_on(small(policy="he", noise=0.1))
    assert "prefetch" in depends_on(small(policy="he", host_tokens=1 << 20, prefetch="aggressive"))
    assert source_digest(depends_on(small(policy="clairvoyant")))


def test_a_trained_predictors_files_are_part_of_the_name(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("1")
    cell = small(policy="he", predictor=f"dir:{tmp_path / 'model'}")
    CellCache(tmp_path / "cells").put(cell, {"hit": 1.0})
    assert CellCache(tmp_path / "cells").get(cell) == {"hit": 1.0}
    (tmp_path / "model" / "config.json").write_text("2")
    assert CellCache(tmp_path / "cells").get(cell) is None
