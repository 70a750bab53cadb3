"""A predictor's folder: what was written is read again; anything else is refused in one sentence."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from pbkv.errors import PbkvError, UsageError
from pbkv.predictor import store
from pbkv.predictor.base import Moment
from pbkv.predictor.load import load_predictor
from pbkv.predictor.names import Roster
from tests.predictor.conftest import AGENTS
from tests.predictor.test_learned import serve


@pytest.fixture
def folder(trained, tmp_path) -> Path:
    weights, config, _ = trained
    store.save(tmp_path / "p", weights, config)
    return tmp_path / "p"


def refused(folder: Path) -> str:
    with pytest.raises(UsageError) as caught:
        load_predictor(folder, Roster())
    assert "\n" not in str(caught.value)
    return str(caught.value)


def change(folder: Path, **fields: object) -> None:
    config = json.loads((folder / store.CONFIG).read_text())
    (folder / store.CONFIG).write_text(json.dumps(config | fields))


def rewrite(folder: Path, name: str, array: np.ndarray | None) -> None:
    from safetensors.numpy import load_file, save_file

    arrays = load_file(folder / store.WEIGHTS)
    if array is None:
        del arrays[name]
    else:
        arrays[name] = array
    save_file(arrays, folder / store.WEIGHTS)


def test_loaded_it_predicts_what_the_trained_one_does(trained, folder) -> None:
    moment = Moment("w", [0, 1], 2, True, np.ones(8))
    assert load_predictor(folder, Roster(list(AGENTS))).predict(moment) == serve(trained, list(AGENTS)).predict(moment)


def test_the_config_is_there_to_be_read(folder) -> None:
    config = json.loads((folder / store.CONFIG).read_text())
    assert {"format", "kind", "agents", "text_dim", "widths", "temperatures", "doubts", "recipe", "parameters"} <= config.keys()
    assert config["agents"][0] == "Planner"
    assert sorted(f.name for f in folder.iterdir()) == [store.CONFIG, store.WEIGHTS]


def test_a_folder_that_is_none(tmp_path) -> None:
    assert "not a folder" in refused(tmp_path / "nothing")
    assert "cannot be read" in refused(tmp_path)


def test_weights_that_are_missing_or_no_weights(folder) -> None:
    (folder / store.WEIGHTS).write_bytes(b"\x80\x04pickle")
    assert "not a safetensors file" in refused(folder)
    (folder / store.WEIGHTS).unlink()
    assert "cannot be read" in refused(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 5000, '{"format": 1}'])
def test_configs_that_are_none(folder, text: str) -> None:
    (folder / store.CONFIG).write_text(text)
    assert store.CONFIG in refused(folder)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format", 2), ("format", None), ("k_max", 4), ("kind", "lstm"), ("kind", ["graphsage"]), ("agents", []), ("agents", "Planner"),
        ("agents", ["a", "a"]), ("agents", [1, 2]), ("text_dim", -1), ("text_dim", 10**9), ("text_dim", True), ("text_dim", "8"),
        ("widths", {"node": 32}), ("widths", 3), ("widths", {"node": 10**9, "path": 32, "text": 64, "hidden": 64, "candidate": 16}),
        ("widths", {"node": 32, "path": 30, "text": 64, "hidden": 64, "candidate": 16}), ("temperatures", [[1.0] * 8]),
        ("temperatures", [[1.0] * 8, [0.0] * 8]), ("temperatures", [[1.0] * 8, ["1"] * 8]), ("temperatures", [[1.0] * 7, [1.0] * 8]),
        ("doubts", [[0.0] * 8, [0.9] * 8]), ("doubts", None),
    ],
)
def test_fields_out_of_range(folder, field: str, value: object) -> None:
    change(folder, **{field: value})
    assert field.rstrip("s") in refused(folder)


def test_numbers_that_are_none_in_the_config(folder) -> None:
    config = (folder / store.CONFIG).read_text()
    (folder / store.CONFIG).write_text(config.replace('"doubts": [\n  [\n   0', '"doubts": [\n  [\n   NaN, 0', 1))
    assert "doubts" in refused(folder)


def test_weights_of_another_shape_type_or_without_numbers(folder) -> None:
    from safetensors.numpy import load_file

    good = load_file(folder / store.WEIGHTS)["nodes"]
    for array in (good[:2].copy(), good.astype(np.float64), good.ravel().copy(), None):
        rewrite(folder, "nodes", array)
        assert "'nodes'" in refused(folder)
    spoilt = good.copy()
    spoilt[0, 0] = np.nan
    rewrite(folder, "nodes", spoilt)
    assert "not finite" in refused(folder)


def test_huge_files_are_not_read(folder, monkeypatch: pytest.MonkeyPatch) -> None:
    os.truncate(folder / store.WEIGHTS, store.MAX_WEIGHTS + 1)  # sparse: takes no room
    assert "larger than 1024 MiB" in refused(folder)
    os.truncate(folder / store.CONFIG, store.MAX_CONFIG + 1)
    assert "larger than 4 MiB" in refused(folder)


def test_more_agents_than_can_be_served(folder) -> None:
    change(folder, agents=[f"a{n}" for n in range(600)])
    assert "at most 511" in refused(folder)


def test_a_folder_is_complete_or_has_no_config(trained, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the two files: the old config must not vouch for the new weights."""
    weights, config, _ = trained
    store.save(tmp_path, weights, config)

    def killed(file: Path, text: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "write_text", killed)
    with pytest.raises(KeyboardInterrupt):
        store.save(tmp_path, weights, config)
    assert "cannot be read" in refused(tmp_path)


def test_a_disk_that_refuses(trained, tmp_path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(PbkvError, match="cannot be written"):
        store.save(tmp_path / "file", trained[0], trained[1])
