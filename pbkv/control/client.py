"""Client of an engine's control interface, used by every front end. No torch, no sglang."""

import os
import re
from pathlib import Path
from typing import Any

import requests

from pbkv.errors import PbkvError, StaleVersion, Unreachable, UsageError
from pbkv.knobs import KNOBS, Value


class ControlClient:
    """Talks to `url` (e.g. http://127.0.0.1:30000). Methods raise Unreachable, StaleVersion or UsageError with a sentence for the user."""

    def __init__(self, url: str, *, token: str | None = None, actor: str = "pbkv", timeout_s: float = 5.0) -> None:
        self.url = url.rstrip("/")
        self.actor = actor
        self._timeout = timeout_s
        self._session = requests.Session()
        self._session.trust_env = False  # never through a proxy: the engine is ours
        token = token or os.environ.get("PBKV_TOKEN")
        if token:
            self._session.headers["Authorization"] = f"Bearer {token}"

    def knobs(self) -> dict[str, Any]:
        """Version, step and, per knob, value, default, min, max, choices, unit, meaning."""
        return self._call("GET", "/pbkv/knobs")

    def set(
        self, changes: dict[str, Value], *, if_version: int | None = None, reason: str = "", source: str = "manual",
        expires_s: float | None = None,
    ) -> dict[str, Any]:
        """Change knobs; returns {"version", "step", "changes": [{"name", "old", "new"}]} once a scheduler step applied it."""
        if if_version is None:
            if_version = int(self.knobs()["version"])
        body: dict[str, Any] = {
            "if_version": if_version, "changes": changes, "actor": self.actor, "reason": reason, "source": source,
        }
        if expires_s is not None:
            body["expires_s"] = expires_s
        return self._call("PATCH", "/pbkv/knobs", body)

    def confirm(self, version: int) -> dict[str, Any]:
        """Keep the change of `version` that would otherwise expire."""
        return self._call("POST", "/pbkv/knobs/confirm", {"version": version})

    def history(self) -> list[dict[str, Any]]:
        """Applied changes, oldest first: version, step, wall_ns, name, old, new, actor, source, reason."""
        return self._call("GET", "/pbkv/knobs/history")

    def revert(self, reason: str = "") -> dict[str, Any]:
        """Undo the newest set of changes: every knob it touched goes back to the value before it."""
        history = self.history()
        if not history:
            raise UsageError("nothing to revert: no knob has been changed on this server")
        newest = history[-1]["version"]
        previous = {h["name"]: h["old"] for h in history if h["version"] == newest}
        return self.set(previous, if_version=newest, reason=reason or f"revert of version {newest}", source="revert")

    def state(self) -> dict[str, Any]:
        """Engine, server name, epoch, event endpoints, counters."""
        return self._call("GET", "/pbkv/state")

    def record(self, epoch: int, after: int) -> dict[str, Any]:
        """Training rows of calls that ended since, see `Recorder.since`."""
        return self._call("POST", "/pbkv/record", {"epoch": epoch, "after": after})

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        try:
            response = self._session.request(method, self.url + path, json=body, timeout=self._timeout)
        except requests.RequestException as error:
            raise Unreachable(f"server {self.url} does not answer ({_short(error)}); is it running with the pbkv plugin?") from None
        if response.status_code == 200:
            return response.json()
        raise self._refusal(response, path)

    def _refusal(self, response: requests.Response, path: str) -> PbkvError:
        try:
            text = str(response.json()["error"])
        except (ValueError, KeyError, TypeError):
            text = f"{self.url}{path} answered {response.status_code}; is this a server with the pbkv plugin?"
        kinds: dict[int, type[PbkvError]] = {409: StaleVersion, 413: UsageError, 422: UsageError, 401: UsageError, 403: UsageError}
        return kinds.get(response.status_code, PbkvError)(text)


def parse_assignments(assignments: list[str]) -> dict[str, Value]:
    """["gamma=0.7", "k=2"] as values, checked against the knob table. Raises UsageError."""
    values: dict[str, Value] = {}
    for text in assignments:
        name, sep, value = text.partition("=")
        if not sep:
            raise UsageError(f"{text!r}: expected NAME=VALUE, for example gamma=0.7")
        if name not in KNOBS:
            raise UsageError(f"knob {name!r}: no such knob; expected one of {', '.join(KNOBS)}")
        if name in values:
            raise UsageError(f"knob {name}: named twice; name it once")
        values[name] = KNOBS[name].parse_text(value)
    return values


def read_token(path: str | None) -> str | None:
    """The token in a file, or None without one. Raises UsageError when it cannot be read."""
    if path is None:
        return None
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise UsageError(f"token file {path!r}: {error.strerror}") from None


def _short(error: Exception) -> str:
    """The operating system's own words, without the layers of the HTTP library around them."""
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    text = str(error)
    number = re.search(r"\[Errno -?\d+\] ([^')\"]+)", text)
    if number:
        return number[1]
    return " ".join(text.split())[:120] if text else type(error).__name__
