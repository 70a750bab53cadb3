"""The link between host and device memory: one queue per direction, first come, first served."""


class Link:
    """Virtual transfers. `shared` is the share of its rate a transfer keeps while the other direction is busy (1 = full duplex)."""

    def __init__(self, bytes_per_s: float, shared: float = 1.0, latency_s: float = 10e-6) -> None:
        self.bytes_per_s, self.shared, self.latency_s = bytes_per_s, shared, latency_s
        self.h2d_free_at = self.d2h_free_at = 0.0
        self.h2d_bytes = self.d2h_bytes = 0

    def to_device(self, now: float, size: int) -> float:
        """Queue a transfer from host to device; returns when it is complete."""
        self.h2d_bytes += size
        self.h2d_free_at = self._done(max(now, self.h2d_free_at), size, self.d2h_free_at)
        return self.h2d_free_at

    def to_host(self, now: float, size: int) -> float:
        """Queue a transfer from device to host; returns when it is complete."""
        self.d2h_bytes += size
        self.d2h_free_at = self._done(max(now, self.d2h_free_at), size, self.h2d_free_at)
        return self.d2h_free_at

    def _done(self, start: float, size: int, other_until: float) -> float:
        """A transfer is slowed by what the other direction had queued when it was queued itself, not by what comes later."""
        start += self.latency_s
        alone_s = size / self.bytes_per_s
        overlap_s = other_until - start
        if self.shared >= 1.0 or overlap_s <= 0:
            return start + alone_s
        slowed_s = alone_s / self.shared
        if slowed_s <= overlap_s:
            return start + slowed_s
        return start + overlap_s + alone_s - overlap_s * self.shared

    def idle(self, now: float) -> bool:
        """Nothing is queued or moving in either direction."""
        return now >= self.h2d_free_at and now >= self.d2h_free_at
