"""How long the plugin's own work took in each scheduler step: a histogram of fixed size, so that a quantile costs no memory."""

import math

#: Buckets per doubling: a quantile is at most a ninth too high.
_PER_OCTAVE = 8
_BUCKETS = 40 * _PER_OCTAVE


class StepTimes:
    """Fed once per step, in nanoseconds; tells microseconds."""

    def __init__(self) -> None:
        self._counts = [0] * _BUCKETS
        self._steps = self._total = self._most = 0

    def add(self, ns: int) -> None:
        """One step that took so long."""
        self._steps += 1
        self._total += ns
        self._most = max(self._most, ns)
        self._counts[min(_BUCKETS - 1, int(_PER_OCTAVE * math.log2(ns))) if ns > 0 else 0] += 1

    def quantile(self, q: float) -> float:
        """Upper edge of the bucket that holds this quantile, microseconds; 0 before the first step."""
        left = math.ceil(q * self._steps)
        for bucket, count in enumerate(self._counts):
            left -= count
            if left <= 0 < count:
                return min(2 ** ((bucket + 1) / _PER_OCTAVE), self._most) / 1e3
        return 0.0

    def summary(self) -> dict[str, float]:
        """Number of steps, and their mean, median, p99 and maximum in microseconds."""
        mean = self._total / self._steps / 1e3 if self._steps else 0.0
        times = {"mean": mean, "p50": self.quantile(0.5), "p99": self.quantile(0.99), "max": self._most / 1e3}
        return {"steps": self._steps, **{name: round(us, 1) for name, us in times.items()}}
