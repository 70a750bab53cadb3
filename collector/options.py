"""What a collector can be told besides where events come from, and how durations and sizes are written."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from collector.retention import Retention
from pbkv.errors import UsageError

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


@dataclass(frozen=True)
class Tls:
    """Certificate chain and private key (PEM files) that the read server shows."""

    certificate: Path
    key: Path

    def read(self) -> tuple[bytes, bytes]:
        """(chain, key). Raises UsageError."""
        parts: list[bytes] = []
        for path in (self.certificate, self.key):
            try:
                parts.append(path.read_bytes())
            except OSError as error:
                raise UsageError(f"TLS file {str(path)!r}: cannot be read ({error.strerror}); name PEM files") from None
            if b"-----BEGIN" not in parts[-1]:
                raise UsageError(f"TLS file {str(path)!r}: not PEM; name a PEM certificate and its key")
        return parts[0], parts[1]


@dataclass(frozen=True)
class Options:
    """Everything optional. `metrics`: HOST:PORT of the Prometheus page; "" = none. `lake`: write to that lake (postgres:...) instead of a
    file, with `lake_data` as its folder when it is made."""

    retention: Retention = field(default_factory=Retention)
    tls: Tls | None = None
    metrics: str = ""
    lake: str = ""
    lake_data: Path | None = None
    #: HOST:PORT of DuckDB's own protocol, "" = not served, and how long a query over it may run, seconds.
    quack: str = ""
    quack_query_s: float = 30.0
    #: The process has a supervisor that starts it again: it may end itself when a query is out of bounds.
    supervised: bool = False


def parse_duration(text: str, what: str) -> float:
    """Seconds of "90s", "15m", "24h" or "7d". Raises UsageError; `what` names the option."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([smhd])", text)
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not 1 <= seconds <= 3660 * 86_400:
        raise UsageError(f"{what} {text!r}: expected a time of 1 s to ten years, for example 90s, 15m, 24h or 7d")
    return seconds


def parse_size(text: str, what: str) -> int:
    """Bytes of "500MB" or "16GiB". Raises UsageError; `what` names the option."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([kKMGT]?i?B)", text)
    unit = _BYTES.get(match[2]) if match else None
    size = int(float(match[1]) * unit) if match and unit else 0
    if not 1 << 20 <= size <= 1 << 60:
        raise UsageError(f"{what} {text!r}: expected a size of at least 1 MiB, for example 500MB, 16GiB or 2TB")
    return size
