"""SGLang's command line as read without SGLang; against its own parser it is checked in tests/sglang_cache/test_launch.py."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pbkv.errors import UsageError
from pbkv.launch.flags import FIELDS, Flags


@pytest.mark.parametrize(("argv", "field", "value"), [
    ([], "host", None),
    (["--host", "::1"], "host", "::1"),
    (["--host=::1"], "host", "::1"),
    (["--host", "a", "--host=b"], "host", "b"),
    (["--model", "m"], "model_path", "m"),
    (["--model-path=m"], "model_path", "m"),
    (["--enable-hicache"], "enable_hierarchical_cache", True),
    (["--enable-metrics", "--host", "x"], "enable_metrics", True),
    (["--disable-radix"], "disable_radix_cache", True),
    (["--dp", "2"], "dp_size", "2"),
    (["--pp=4"], "pp_size", "4"),
    (["--data-parallel-size", "2"], "dp_size", "2"),
    (["--hicache", "2"], "hicache_ratio", None),
    (["--hicache-r", "2"], "hicache_ratio", "2"),
    (["--port", "1", "stray", "--device"], "device", True),
    (["-p", "1"], "port", None),
    (["--"], "port", None),
    (["--hicache-ratio", "-1"], "hicache_ratio", "-1"),
    (["--something-else", "--port", "7"], "port", "7"),
    (["--pbkv-config", "f.json"], "pbkv_config", "f.json"),
])
def test_what_is_read(argv: list[str], field: str, value: object) -> None:
    flags = Flags(argv)
    assert flags.get(field) == value
    assert (field in flags) == (value is not None)


def test_an_unknown_field_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError):
        Flags([]).get("no_such_field")


def test_a_file_counts_less_than_a_flag(tmp_path: Path) -> None:
    file = tmp_path / "sglang.yaml"
    file.write_text("host: 1.2.3.4\nport: 8000\nmodel: m\nenable-metrics: true\nenable-cache-report: false\ndevice:\nother: [1]\n3: x\n")
    flags = Flags(["--config", str(file), "--port", "9000"])
    assert (flags.get("host"), flags.get("port"), flags.get("model_path"), flags.get("enable_metrics")) == ("1.2.3.4", "9000", "m", True)
    assert "enable_cache_report" not in flags and "device" not in flags


@pytest.mark.parametrize("text", ["", "- a\n", "just text", "a: [", "\x00", "a: !!python/object:os.system x\n"])
def test_a_file_that_maps_nothing_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "sglang.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match="expected YAML that maps"):
        Flags(["--config", str(file)])


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match="--config /no/such: No such file"):
        Flags(["--config", "/no/such"])


SPELLED = st.sampled_from([f"--{field.replace('_', '-')}" for field in FIELDS if field != "config"])


@given(st.lists(st.one_of(st.text(max_size=12), SPELLED), max_size=8))
def test_any_words(words: list[str]) -> None:
    flags = Flags([w for w in words if not w.startswith("--c")])
    assert all(value is None or value is True or isinstance(value, str) for value in map(flags.get, FIELDS))
