"""Numbers as people read them."""

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards import format as fmt


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (7, "7"),
        (950, "950"),
        (999, "999"),
        (1000, "1k"),
        (12_345, "12.3k"),
        (60_000, "60k"),
        (999_499, "999k"),
        (999_500, "1.0M"),
        (4_100_000, "4.1M"),
    ],
)
def test_count(value: int, text: str):
    assert fmt.count(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (640, "640 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1_258_291, "1.2 MiB"),
        (64 << 20, "64 MiB"),
        (131 << 30, "131 GiB"),
        (1 << 40, "1 TiB"),
    ],
)
def test_size(value: int, text: str):
    assert fmt.size(value) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(None, "–"), (0.0, "0 %"), (0.71, "71 %"), (1.0, "100 %"), (0.004, "< 1 %"), (0.006, "1 %")],
)
def test_percent(share: float | None, text: str):
    assert fmt.percent(share) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.44, "0.4 ms"),
        (9.94, "9.9 ms"),
        (9.96, "10 ms"),
        (34.4, "34 ms"),
        (999.4, "999 ms"),
        (1240, "1.24 s"),
        (186_000, "3.1 min"),
    ],
)
def test_millis(value: float | None, text: str):
    assert fmt.millis(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0 s"), (4.4, "4 s"), (89, "89 s"), (90, "2 min"), (3600, "60 min"), (7200, "2 h"), (200_000, "2 d")],
)
def test_age(seconds: float, text: str):
    assert fmt.age(seconds) == text


def test_plural():
    assert [fmt.plural(n, "message") for n in (0, 1, 2, 1200)] == ["0 messages", "1 message", "2 messages", "1.2k messages"]


@given(st.floats(0, 1e17))
def test_no_number_is_wider_than_its_column(value: float):
    assert len(fmt.count(value)) <= 6
    assert len(fmt.size(value)) <= 9


@given(st.floats(0, 1e15), st.floats(0, 1e15))
def test_a_larger_number_never_reads_smaller(a: float, b: float):
    small, large = sorted((a, b))
    assert _value(fmt.count(small)) <= _value(fmt.count(large))


def _value(text: str) -> float:
    factor = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}.get(text[-1])
    return float(text[:-1]) * factor if factor else float(text)


def test_clock_is_in_the_viewers_zone():
    moment = datetime(2026, 3, 1, 23, 30, 5, 123_456, tzinfo=UTC)
    assert fmt.clock(moment, UTC) == "23:30:05"
    assert fmt.clock(moment, ZoneInfo("Asia/Tokyo"), with_date=True) == "2026-03-02 08:30:05"
    assert fmt.axis_time(moment, UTC) == "2026-03-01T23:30:05.123"


def test_a_naive_time_is_utc():
    naive = datetime(2026, 3, 1, 12)
    assert fmt.utc(naive) == datetime(2026, 3, 1, 12, tzinfo=UTC)
    east = timezone(timedelta(hours=2))
    assert fmt.clock(naive, east) == "14:00:00"
    assert fmt.utc(datetime(2026, 3, 1, 14, tzinfo=east)) == datetime(2026, 3, 1, 12, tzinfo=UTC)
