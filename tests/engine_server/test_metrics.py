"""The text format: parsed back by Prometheus' own parser, cumulative buckets, labels that cannot break a line."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from pbkv.engine.server.metrics import SECONDS, Metrics


def parsed(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(metrics.text())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def test_numbers_are_read_when_asked_for() -> None:
    metrics, value = Metrics(model_name="m"), [1.0]
    metrics.number("pbkv:things_total", "counter", "Things.", lambda: value[0])
    key = ("pbkv:things_total", (("model_name", "m"),))
    assert parsed(metrics)[key] == 1
    value[0] = 12345678.5
    assert parsed(metrics)[key] == 12345678.5


def test_series_of_one_name_have_their_own_labels_too() -> None:
    metrics = Metrics(model_name="m")
    metrics.family("t", "gauge", "By tier.", lambda: {'tier="device"': 3, 'tier="host"': 4})
    assert parsed(metrics) == {("t", (("model_name", "m"), ("tier", tier))): n for tier, n in (("device", 3), ("host", 4))}
    assert metrics.text().count("# TYPE t gauge") == 1


@given(st.lists(st.floats(0, 1000), max_size=60))
def test_a_histogram_counts_at_or_below_each_bound(values: Iterable[float]) -> None:
    metrics = Metrics(model_name="m")
    histogram = metrics.histogram("h", "Seconds.", SECONDS)
    seen = list(values)
    for value in seen:
        histogram.observe(value)
    samples = parsed(metrics)
    base = (("model_name", "m"),)
    for bound in SECONDS:
        labels = tuple(sorted((*base, ("le", str(bound)))))
        assert samples["h_bucket", labels] == sum(v <= bound for v in seen)
    assert samples["h_bucket", tuple(sorted((*base, ("le", "+Inf"))))] == samples["h_count", base] == len(seen)
    assert samples["h_sum", base] == pytest.approx(sum(seen))


@given(st.text(max_size=40))
def test_any_model_name_can_be_a_label(name: str) -> None:
    metrics = Metrics(model_name=name)
    metrics.number("n", "gauge", "A number.", lambda: 1)
    (value,) = parsed(metrics).values()
    assert value == 1


def test_a_label_is_given_back_as_it_was() -> None:
    name = 'a "quoted" \\ name\nwith a line'
    metrics = Metrics(model_name=name)
    metrics.number("n", "gauge", "A number.", lambda: 1)
    assert list(parsed(metrics)) == [("n", (("model_name", name),))]
