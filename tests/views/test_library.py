"""Every stored question says what it answers, answers that, and reads a bounded part of the store."""

import re
from pathlib import Path

import pytest

from collector.client import open as open_source
from collector.reader import Reader
from collector.views.library import ALL, QUERIES
from collector.views.query import Query
from collector.views.scope import find_scope
from pbkv.errors import UsageError
from tests.support.stream import fill


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory):
    path: Path = tmp_path_factory.mktemp("views") / "fill.duckdb"
    fill(path, seconds=30, seed=1)
    with open_source(str(path)) as reader:
        yield reader


@pytest.mark.parametrize("query", ALL, ids=lambda q: q.name)
def test_the_columns_are_the_documented_ones(reader: Reader, query: Query) -> None:
    table = query.run(reader, find_scope(reader).params)
    assert table.column_names == list(query.columns)
    assert table.num_rows or query.name == "loss"
    assert query.title and all(query.columns.values())


@pytest.mark.parametrize("query", ALL, ids=lambda q: q.name)
def test_every_scan_of_events_is_bounded(query: Query) -> None:
    # Knob changes and losses are rows made by people and faults: few, and all of them matter.
    if query.name in ("knob_changes", "loss"):
        return
    for scan in re.split(r"FROM raw\.", query.sql)[1:]:
        if not scan.startswith("name"):
            assert re.match(r"\w+\s+WHERE src = \$src AND t > make_timestamp\(\$\w+\) AND t <= make_timestamp\(\$t1\)", scan)


def test_names_are_unique() -> None:
    assert len(QUERIES) == len(ALL)


def test_an_unknown_server_is_named_with_those_there_are(reader: Reader) -> None:
    with pytest.raises(UsageError, match=r"server 'nope': not in .*; expected one of synthetic-0"):
        find_scope(reader, server="nope")


def test_a_file_ends_at_its_last_event(reader: Reader) -> None:
    scope = find_scope(reader, 10.0)
    assert scope.server is not None and scope.now == scope.server.last_event
    newest = reader.sql("SELECT max(t) AS t FROM (SELECT t FROM batch UNION ALL SELECT t FROM occupancy UNION ALL SELECT t FROM knob)")
    assert scope.now == newest.to_pylist()[0]["t"]
