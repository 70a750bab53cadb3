"""The statement guard: what a reader may run, what it may not, and that nothing crashes it."""

import contextlib
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.guard import MAX_SQL, TABLE_FUNCTIONS, Guard
from collector.macros import MACROS
from pbkv.errors import UsageError
from tests.collector.statements import ALLOWED, REFUSED


@pytest.fixture(scope="module")
def guard() -> Guard:
    return Guard(MACROS)


def test_there_are_at_least_as_many_cases_as_ways_known_to_get_around_a_guard():
    assert len(ALLOWED) + len(REFUSED) >= 250
    assert len(set(ALLOWED)) == len(ALLOWED) >= 80
    assert len({sql for sql, _ in REFUSED}) == len(REFUSED)


@pytest.mark.parametrize("sql", ALLOWED)
def test_allowed(guard: Guard, sql: str):
    guard.check(sql)


@pytest.mark.parametrize(("sql", "reason"), REFUSED, ids=lambda text: text[:50])
def test_refused_with_the_reason(guard: Guard, sql: str, reason: str):
    with pytest.raises(UsageError) as caught:
        guard.check(sql)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_refused_table_function_is_named_and_the_allowed_ones_are_listed(guard: Guard):
    with pytest.raises(UsageError, match=r"table function glob: .*range"):
        guard.check("FROM glob('*')")


def test_a_syntax_error_tells_where(guard: Guard):
    with pytest.raises(UsageError, match="character 13"):
        guard.check("SELECT 1 FRM x")


def test_length_is_checked_before_parsing(guard: Guard):
    start = time.monotonic()
    with pytest.raises(UsageError, match=str(MAX_SQL)):
        guard.check("SELECT 1 WHERE " + "1 OR " * 500_000 + "1")
    assert time.monotonic() - start < 0.5


def test_the_longest_statement_passes(guard: Guard):
    head = "SELECT '"
    guard.check(head + "x" * (MAX_SQL - len(head) - 1) + "'")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + "(" * 900 + "1" + ")" * 900,
        "SELECT " + "[" * 5000 + "]" * 5000,
        "SELECT " + "NOT " * 10_000 + "true",
        "SELECT 1" + " UNION ALL SELECT 1" * 3000,
        "SELECT 1" + " + 1" * 15_000,
        "SELECT * FROM " + "(SELECT * FROM " * 300 + "meta" + ")" * 300,
    ],
    ids=["parentheses", "lists", "nots", "unions", "sum", "subqueries"],
)
def test_deep_or_wide_statements_pass_or_are_refused_but_never_crash(guard: Guard, sql: str):
    with contextlib.suppress(UsageError):
        guard.check(sql)
    guard.check("SELECT 1")


def test_a_nul_hides_nothing(guard: Guard):
    with pytest.raises(UsageError):
        guard.check("SELECT 1; DROP TABLE meta\0")


def test_lone_surrogates_are_a_refusal_not_a_crash(guard: Guard):
    with pytest.raises(UsageError):
        guard.check("SELECT '\ud800'")


def test_own_macros_are_admitted_by_name():
    with pytest.raises(UsageError, match="pbkv_recent"):
        Guard().check("FROM pbkv_recent(10)")
    Guard(["PBKV_recent"]).check("FROM pbkv_recent(10)")
    Guard(["pbkv_recent"]).check("FROM PBKV_RECENT(10)")


@given(st.sampled_from(REFUSED), st.sampled_from(["{}", " {} ", "/* c */ {}", "-- c\n{}", "{} -- c", "{};"]))
def test_comments_and_spaces_change_nothing(case, around):
    sql, _ = case
    with pytest.raises(UsageError):
        _GUARD.check(around.format(sql))


@given(st.text(max_size=200))
def test_any_text_is_checked_or_refused(text):
    with contextlib.suppress(UsageError):
        _GUARD.check(text)


@given(st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=30).filter(lambda n: n not in TABLE_FUNCTIONS))
def test_no_table_function_outside_the_list(name):
    with pytest.raises(UsageError):
        _GUARD.check(f'SELECT * FROM (SELECT 1) x JOIN "{name}"(1) ON true')


def test_threads_share_a_guard(guard: Guard):
    errors: list[Exception] = []

    def work() -> None:
        for _ in range(30):
            try:
                guard.check("SELECT 1")
                with pytest.raises(UsageError):
                    guard.check("DROP TABLE x")
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


_GUARD = Guard(MACROS)


@pytest.mark.parametrize("name", MACROS)
def test_own_macros_use_nothing_that_is_refused(guard: Guard, name: str):
    """A macro's body runs with the statement that names it, but is not in its text."""
    guard.check(MACROS[name][2])
