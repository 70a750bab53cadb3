"""Questions over long ranges are answered from the rollups, and say what the events would have said."""

import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from collector import client
from collector.reader import Reader
from collector.roller import Roller
from collector.store import Store
from collector.views.library import ALL
from collector.views.overview import load_overview
from collector.views.query import Query
from collector.views.scope import find_scope, micros
from pbkv.events.wire import decode
from tests.support.stream import record

ROLLED = [q for q in ALL if q.rolled]
#: Columns that come from a histogram: within one bin.
ROUGH = {"ttft_p50_ms", "ttft_p95_ms", "p50_ms"}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("rolled") / "e.duckdb"
    store = Store(path)
    messages = [decode(p) for p in record(130, seed=8)]
    roller = Roller(store)
    for start in range(0, len(messages), 1300):
        store.commit(messages[start : start + 1300])
        roller.roll(store.stored(), minutes=start % 2 == 0)
    roller.roll(store.stored(), minutes=True)
    store.close()
    with client.open(str(path)) as opened:
        yield opened


def params(reader: Reader) -> dict[str, int]:
    """A range of whole minutes, away from the times at which events are."""
    scope = find_scope(reader, 60.0)
    start = scope.now.replace(second=0, microsecond=0) - timedelta(minutes=2)
    t0, t1 = micros(start), micros(start + timedelta(minutes=2)) - 1
    return {**scope.params, "t0": t0, "t1": t1, "past": t0 - 900 * 10**6, "seq0": 0, "bucket": 60 * 10**6}


def close(a: Any, b: Any, rough: bool) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=0.06 if rough else 1e-6)
    return a == b


@pytest.mark.parametrize("suffix", ["1s", "1m"])
@pytest.mark.parametrize("query", ROLLED, ids=lambda q: q.name)
def test_the_answer_is_that_of_the_events(reader: Reader, query: Query, suffix: str):
    scope = params(reader)
    used = {k: scope[k] for k in query.params}
    plain = reader.sql(query.sql, {k: v for k, v in used.items() if f"${k}" in query.sql})
    rolled_sql = query.rolled.replace("{w}", suffix)
    rolled = reader.sql(rolled_sql, {k: v for k, v in used.items() if f"${k}" in rolled_sql})
    assert rolled.schema.equals(plain.schema), query.name
    assert plain.num_rows > 0
    for a, b in zip(plain.to_pylist(), rolled.to_pylist(), strict=True):
        for name in query.columns:
            assert close(a[name], b[name], name in ROUGH), (query.name, name, a, b)


def test_which_statement_a_range_gets():
    hour = 3600 * 10**6
    for query in ROLLED:
        assert query.sql_for(600 * 10**6) == query.sql
        assert "_1s" in query.sql_for(hour) and "{w}" not in query.sql_for(hour)
        assert "_1m" in query.sql_for(7 * hour)
        assert query.sql_for(60 * 10**6, 5_000_000) == query.sql_for(hour)
        assert query.sql_for(5 * 10**6, 5_000_000) == query.sql_for(60 * 10**6, 100_000) == query.sql
    for query in ALL:
        if query not in ROLLED:
            assert query.sql_for(1000 * hour) == query.sql


@pytest.mark.parametrize("window_s", [601.0, 7200.0, 86_400.0 * 30])
def test_the_first_screen_over_a_long_range(reader: Reader, window_s: float):
    long, short = load_overview(reader, window_s), load_overview(reader, 590.0)
    assert (long.hit_rate.calls, long.hit_rate.prompt_tokens) == (short.hit_rate.calls, short.hit_rate.prompt_tokens)
    assert long.evictions == short.evictions
    assert long.prefetches == short.prefetches
    assert [(a.horizon, a.scored, a.correct) for a in long.accuracy] == [(a.horizon, a.scored, a.correct) for a in short.accuracy]
    assert long.windows.count == short.windows.count


def test_an_empty_store_gives_the_same_nothing(tmp_path: Path):
    Store(tmp_path / "e.duckdb").close()
    with client.open(str(tmp_path / "e.duckdb")) as empty:
        scope = {"src": 1, "t0": 0, "t1": 1, "past": 0, "seq0": 0, "bucket": 10**6}
        for query in ROLLED:
            statements = (query.sql, query.rolled.replace("{w}", "1s"), query.rolled.replace("{w}", "1m"))
            answers = [empty.sql(sql, {k: v for k, v in scope.items() if f"${k}" in sql}).to_pylist() for sql in statements]
            assert answers[0] == answers[1] == answers[2], query.name
