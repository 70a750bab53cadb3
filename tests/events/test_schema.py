"""The schema table: sizes agree between struct, NumPy and wire, names are unique, docs texts exist."""

import re

import pytest

from pbkv.events import schema
from pbkv.events.schema import BY_CODE, BY_NAME, DIGEST, EVENT_KINDS, KINDS, Field, Namespace, manifest


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_struct_and_numpy_agree_on_size_and_offsets(kind):
    assert kind.struct.size == kind.dtype.itemsize
    assert kind.dtype.names == ("idx", *(f.name for f in kind.fields))
    packed = kind.struct.pack(7, *(b"x" if f.dtype.startswith("s") else 3 for f in kind.fields))
    row = __import__("numpy").frombuffer(packed, kind.dtype)[0]
    assert row["idx"] == 7
    assert all(row[f.name] in (3, b"x") for f in kind.fields)


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_every_row_and_field_has_a_meaning_and_a_clean_name(kind):
    assert kind.row
    names = [f.name for f in kind.fields]
    assert len(names) == len(set(names))
    for field in kind.fields:
        assert field.meaning
        assert re.fullmatch(r"[a-z][a-z0-9_]*", field.name)
        assert field.name not in ("src", "seq", "idx", "t", "server", "epoch", "rank", "sched_step")


def test_codes_and_names_are_unique():
    assert len(BY_CODE) == len(BY_NAME) == len(KINDS)
    assert len(EVENT_KINDS) == 12
    assert "name" not in EVENT_KINDS


def test_enumerated_fields_are_u8_and_their_values_unique():
    for kind in KINDS:
        for field in kind.fields:
            if field.values:
                assert field.dtype == "u8"
                assert len(set(field.values)) == len(field.values) <= 256
                assert [field.code(v) for v in field.values] == list(range(len(field.values)))


def test_ids_are_u32_and_enumerated_or_named_not_both():
    for kind in KINDS:
        for field in kind.fields:
            assert field.ref is None or (field.dtype == "u32" and not field.values)


def test_an_unknown_value_has_no_code():
    with pytest.raises(ValueError, match="tuple"):
        BY_NAME["batch"].field("mode").code("sleeping")


def test_names_cover_every_namespace():
    assert BY_NAME["name"].field("namespace").values == ("none", *(n.name.lower() for n in Namespace))


def test_the_manifest_is_the_table_as_plain_data():
    import json

    data = json.loads(json.dumps(manifest()))
    assert data["digest"] == DIGEST.hex()
    assert set(data["kinds"]) == set(BY_NAME)
    call = data["kinds"]["call"]["fields"]
    assert [f["name"] for f in call] == [f.name for f in BY_NAME["call"].fields]
    assert call[0]["names"] == "workflow"


@pytest.mark.parametrize("field", [Field("x", "u32", "m"), Field("x", "u8", "m", values=("a", "b")), Field("y", "u8", "m")])
def test_the_digest_changes_with_names_types_and_codes_but_not_with_words(monkeypatch, field):
    kind = KINDS[0]
    changed = schema.Kind(kind.code, kind.name, "other words", (*kind.fields, field))
    monkeypatch.setattr(schema, "KINDS", (changed, *KINDS[1:]))
    assert schema._digest() != DIGEST
    reworded = schema.Kind(kind.code, kind.name, "other words", kind.fields)
    monkeypatch.setattr(schema, "KINDS", (reworded, *KINDS[1:]))
    assert schema._digest() == DIGEST
