"""Counters, gauges and histograms in the Prometheus text format. Names are fixed in code, and so is the number of series."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

#: Upper bounds SGLang uses for seconds, so that a dashboard made for it fits.
SECONDS = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0)
#: The same for the time between two tokens.
TOKEN_SECONDS = (0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0)


class Histogram:
    """Observations counted by upper bound."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def samples(self, name: str, labels: str) -> Iterable[str]:
        """Lines of the exposition; buckets are cumulative."""
        for bound, count in zip((*map(str, self._bounds), "+Inf"), accumulate(self._counts), strict=True):
            yield f'{name}_bucket{{{labels},le="{bound}"}} {count}'
        yield f"{name}_sum{{{labels}}} {self._sum!r}"
        yield f"{name}_count{{{labels}}} {sum(self._counts)}"


class Metrics:
    """What GET /metrics shows. Every series carries the same base labels."""

    def __init__(self, **labels: str) -> None:
        self._labels = ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())
        self._lines: list[Callable[[], Iterable[str]]] = []

    def number(self, name: str, kind: str, meaning: str, read: Callable[[], float]) -> None:
        """A counter or gauge that is read when asked for."""
        self.family(name, kind, meaning, lambda: {"": read()})

    def family(self, name: str, kind: str, meaning: str, read: Callable[[], dict[str, float]]) -> None:
        """Several series of one name; keys are their own labels, like `pool="kv"`."""
        def lines() -> Iterable[str]:
            yield from _head(name, kind, meaning)
            for own, value in read().items():
                yield f"{name}{{{','.join(filter(None, (own, self._labels)))}}} {value:.12g}"

        self._lines.append(lines)

    def histogram(self, name: str, meaning: str, bounds: Sequence[float]) -> Histogram:
        """A histogram; its owner observes."""
        made = Histogram(bounds)

        def lines() -> Iterable[str]:
            yield from _head(name, "histogram", meaning)
            yield from made.samples(name, self._labels)

        self._lines.append(lines)
        return made

    def text(self) -> str:
        """The exposition, version 0.0.4."""
        return "".join(f"{line}\n" for lines in self._lines for line in lines())


def _head(name: str, kind: str, meaning: str) -> Iterable[str]:
    yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} {kind}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
