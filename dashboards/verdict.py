"""The first line of the page and the banner under it: what is going on, and what to do when something is wrong."""

from dataclasses import dataclass

from collector.views.models import Overview
from dashboards.feed import Snapshot
from dashboards.format import age, count, percent, plural


@dataclass(frozen=True)
class Badge:
    """State of the stream in one word. `tone`: good, warn, bad or quiet."""

    text: str
    tone: str


@dataclass(frozen=True)
class Banner:
    """Something to act on: what it is, what it means for the numbers, what to do."""

    tone: str
    title: str
    text: str


def badge(snapshot: Snapshot | None) -> Badge:
    """Live, stale with its age, recorded, waiting or unreachable."""
    if snapshot is None:
        return Badge("connecting", "quiet")
    if snapshot.error is not None:
        return Badge("collector unreachable" if snapshot.unreachable else "cannot read", "bad")
    overview = snapshot.overview
    if overview is None or overview.status == "empty" or overview.server is None:
        return Badge("waiting for a server", "quiet")
    if overview.status == "stale":
        return Badge(f"stale · {age(overview.server.age_s)}", "warn")
    return Badge("recorded", "quiet") if overview.status == "recorded" else Badge("live", "good")


def line(overview: Overview | None) -> str:
    """Serving · hit rate 71 % (device 58 %, host 13 %) · predictor right 3 of 4 · 0 messages lost."""
    if overview is None:
        return "Waiting for the first data"
    if overview.server is None:
        return "Waiting for a server · no events yet"
    return " · ".join([_state(overview), _hits(overview), _predictor(overview), f"{plural(overview.loss.messages, 'message')} lost"])


def _state(overview: Overview) -> str:
    assert overview.server is not None
    if overview.status == "recorded":
        return "Recording"
    if overview.status == "stale":
        return f"Silent for {age(overview.server.age_s)}"
    now = overview.occupancy
    busy = overview.hit_rate.calls or (now is not None and now.running + now.waiting)
    return "Serving" if busy else "Idle"


def _hits(overview: Overview) -> str:
    rate = overview.hit_rate
    if rate.device is None or rate.host is None:
        return "no calls ended"
    return f"hit rate {percent(rate.device + rate.host)} (device {percent(rate.device)}, host {percent(rate.host)})"


def _predictor(overview: Overview) -> str:
    first = next((a for a in overview.accuracy if a.horizon == 1 and a.scored), None)
    return f"predictor right {count(first.correct)} of {count(first.scored)}" if first else "nothing predicted yet"


def banner(snapshot: Snapshot | None, source: str) -> Banner | None:
    """The one thing to act on first, or None."""
    if snapshot is None:
        return None
    if snapshot.error is not None:
        return _failing(snapshot, source)
    overview = snapshot.overview
    if overview is None:
        return None
    return _quiet(overview) or _loss(overview) or _anonymous(overview)


def _failing(snapshot: Snapshot, source: str) -> Banner:
    kept = "The last data read stays on the page" if snapshot.overview else "Nothing has been read yet"
    if not snapshot.unreachable:
        return Banner(
            "bad", f"No new data for {age(snapshot.failing_s)}", f"Reading {source} failed: {snapshot.error}. {kept}; reading goes on."
        )
    return Banner(
        "bad",
        f"Collector unreachable for {age(snapshot.failing_s)}",
        f"{snapshot.error}. {kept}. Start it with `pbkv collect`; this page goes on by itself.",
    )


def _quiet(overview: Overview) -> Banner | None:
    if overview.server is None or overview.status == "empty":
        return Banner(
            "quiet",
            "No events yet",
            "The collector runs but no engine has sent anything. Start a server with the pbkv plugin (`pbkv serve`, "
            "or `pbkv demo` to try it).",
        )
    if overview.status == "stale":
        return Banner(
            "warn",
            f"No events for {age(overview.server.age_s)}",
            f"{overview.server.name} has nothing to do, was stopped, or cannot reach the collector. "
            "The numbers are of the window up to now; the page goes on when events come.",
        )
    return None


def _loss(overview: Overview) -> Banner | None:
    loss = overview.loss
    if not loss.messages:
        return None
    return Banner(
        "warn",
        f"{plural(loss.messages, 'message')} lost in {plural(loss.gaps, 'gap')}",
        "Counts and sums on this page are low by what these messages carried; shares and medians rest on the rest.",
    )


def _anonymous(overview: Overview) -> Banner | None:
    rate = overview.hit_rate
    if not rate.calls or rate.unattributed_calls < rate.calls:
        return None
    return Banner(
        "quiet",
        f"None of {plural(rate.calls, 'call')} names its workflow",
        "Without it nothing is predicted and nothing retires. Send custom_params.pbkv with workflow and agent "
        "(OpenAI clients: extra_body).",
    )
