"""What is staged on the Tune screen, as pure logic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.top.stage import Stage, moved
from pbkv.errors import UsageError
from pbkv.knobs import KNOBS
from pbkv.whatif.setting import KNOB_FIELDS, Setting

BASE = {k.name: k.default for k in KNOBS.values()}


def stage() -> Stage:
    return Stage(BASE, 3)


def test_what_is_in_force_is_never_staged() -> None:
    s = stage()
    s.put("gamma", 0.5)
    s.put("k", 3)
    assert s.changes == {"gamma": 0.5} and s.value("gamma") == 0.5 and s.value("k") == 3
    s.put("gamma", 0.8)
    assert s.changes == {}


def test_typing() -> None:
    s = stage()
    s.type("k", " 5 ")
    assert s.changes == {"k": 5}
    for name, text in (("k", "9"), ("k", ""), ("gamma", "nan"), ("policy", "best"), ("unheard", "1")):
        with pytest.raises(UsageError, match=name):
            s.type(name, text)
    assert s.changes == {"k": 5}
    s.undo("k")
    s.undo("gamma")
    assert s.changes == {}


@pytest.mark.parametrize(("name", "value", "up", "down"), [
    ("gamma", 0.8, 0.85, 0.75), ("gamma", 1.0, 1.0, 0.95), ("gamma", 0.02, 0.07, 0.0),
    ("k", 3, 4, 2), ("k", 8, 8, 7), ("k", 1, 2, 1),
    ("prefetch_budget", 64 << 20, 128 << 20, 32 << 20), ("prefetch_budget", 0, 1 << 20, 0), ("prefetch_budget", 1 << 20, 2 << 20, 0),
    ("prefetch_budget", 1 << 40, 1 << 40, 1 << 39),
    ("policy", "lru", "lae", "first_use"), ("prefetch", "aggressive", "off", "conservative"),
])
def test_one_step(name: str, value, up, down) -> None:
    assert moved(name, value, 1) == up and moved(name, value, -1) == down


@given(st.sampled_from(KNOB_FIELDS), st.lists(st.sampled_from([-1, 1]), max_size=60))
def test_no_walk_leaves_the_bounds(name: str, steps: list[int]) -> None:
    s = stage()
    for step in steps:
        s.move(name, step)
        assert KNOBS[name].parse(s.value(name)) == s.value(name)
        assert s.changes.get(name) != BASE[name]


def test_the_setting_is_all_knobs_where_they_are_known() -> None:
    s = stage()
    s.put("policy", "lru")
    assert s.setting.given == {**{n: BASE[n] for n in KNOB_FIELDS}, "policy": "lru"}
    s.put("retire_idle_s", 5.0)
    assert s.unforecast == ["retire_idle_s"]


def test_without_a_server_the_setting_is_what_is_staged() -> None:
    s = Stage.unknown({"gamma": 0.5})
    assert s.version == 0 and s.setting == Setting(gamma=0.5)
    assert Stage.unknown().setting == Setting()


def test_newer_knobs_keep_what_is_staged_unless_it_is_in_force_by_now() -> None:
    s = stage()
    s.put("gamma", 0.5)
    s.put("k", 5)
    s.rebase({**BASE, "gamma": 0.5, "policy": "lru"}, 4)
    assert s.changes == {"k": 5} and s.version == 4 and s.value("policy") == "lru" and s.value("gamma") == 0.5
