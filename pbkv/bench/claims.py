"""What the paper says beside what came out here: each claim with its figure, ours, and the place on the curves."""

from collections.abc import Callable, Mapping

from pbkv.bench.compare import Finding, Value, against, best, gain, panels_of, reach
from pbkv.bench.experiment import Summary

_GENERATED = ("HoVer", "SWE-bench", "FinanceBench")


def findings(summaries: Mapping[str, Summary]) -> list[Finding]:
    """All claims whose experiments were run."""
    made: list[Finding] = []
    for name, judges in _JUDGES.items():
        summary = summaries.get(name)
        for judge in judges if summary is not None and summary.figures else ():
            made += judge(summary)  # type: ignore[arg-type]
    return made


def _gains(summary: Summary) -> list[Finding]:
    """What the paper reports over LRU and KVFlow, to be reached somewhere on the curves, by predictions that can be had."""
    made: list[Finding] = []
    for policy in ("he", "first_use"):
        for claim, paper, word, value in _aims(summary, policy):
            found = [b for p in ("markov", "bayes") if (b := best(summary, panels_of(summary, word), value(f"{policy} {p}")))]
            made += reach(claim.format(policy=policy), paper, max(found, key=lambda b: b.value, default=None))
    lae = best(summary, panels_of(summary, "HoVer"), against(summary, "lae", "lru", ratio=True))
    return [*made, *reach("HoVer: hit rate of LAE over LRU, without a predictor", 1.66, lae)]


def _aims(summary: Summary, policy: str) -> list[tuple[str, float, str, Callable[[str], Value]]]:
    """(claim, the paper's figure, panels, our figure of a series at a place)."""
    rival = "kvflow bayes"
    return [
        ("HoVer: hit rate of {policy} over LRU", 2.55, "HoVer", lambda s: against(summary, s, "lru", ratio=True)),
        ("HoVer: latency gain of {policy} over LRU", 1.85, "HoVer", lambda s: gain(summary, s, "latency_gain")),
        ("HoVer: TTFT gain of {policy} over LRU", 2.03, "HoVer", lambda s: gain(summary, s, "ttft_gain")),
        ("static chain: hit rate of {policy} over KVFlow", 1.39, "FinanceBench", lambda s: against(summary, s, rival, ratio=True)),
        ("static chain: latency of KVFlow over {policy}", 1.26, "FinanceBench", lambda s: _slower(summary, rival, s)),
    ]


def _slower(summary: Summary, rival: str, series: str) -> Value:
    return against(summary, rival, series, "latency_mean", ratio=True)


def _paper_point(summary: Summary) -> list[Finding]:
    """The place whose LRU hit rate is nearest to the paper's 27.09 %: its three figures for HoVer with Qwen3-32B, and ours."""
    near = best(summary, panels_of(summary, "HoVer"), _distance(summary, 27.09), least=True)
    if near is None:
        return []
    here = _rates(summary, near.panel, near.x)
    return [Finding("HoVer, hit rates where LRU is nearest to the paper's", "LRU 27, LAE 45, PBKV 69", here, near.where, None)]


def _distance(summary: Summary, hit: float) -> Value:
    return lambda panel, x: None if (h := summary.mean(panel, "lru", x)) is None else abs(h - hit)


def _rates(summary: Summary, panel: str, x: float) -> str:
    names = ("lru", "lae", "he markov", "he bayes", "first_use markov", "first_use bayes", "clairvoyant")
    return ", ".join(f"{name} {rate:.0f}" for name in names if (rate := summary.mean(panel, name, x)) is not None)


def _pressure_band(summary: Summary) -> list[Finding]:
    """Under heavy pressure the paper has LRU at about 10 % and PBKV at 50 to 60 %: our hit rates where LRU is nearest to 10 %."""
    near = best(summary, panels_of(summary, "HoVer"), _distance(summary, 10.0), least=True)
    if near is None:
        return []
    return [Finding("heavy pressure: hit rates", "LRU 10, PBKV 50 to 60", _rates(summary, near.panel, near.x), near.where, None)]


def _markov_between(summary: Summary) -> list[Finding]:
    """Places on the dynamic curves where hit(LAE) <= hit(he markov) <= hit(he bayes), to one point."""
    dynamic = [*panels_of(summary, "HoVer"), *panels_of(summary, "SWE")]
    rows = [[summary.mean(panel, s, x) for s in ("lae", "he markov", "he bayes")] for panel in dynamic for x in summary.xs(panel)]
    known = [(a, b, c) for a, b, c in rows if a is not None and b is not None and c is not None]
    if not known:
        return []
    good = sum(a - 1 <= b <= c + 1 for a, b, c in known)
    here = f"at {good} of {len(known)} places"
    return [Finding("Markov lies between LAE and the full predictor", "yes", here, "dynamic curves", 2 * good > len(known))]


def _first_use(summary: Summary) -> list[Finding]:
    """first_use against he, with the same predictor, at every place."""
    made: list[Finding] = []
    for name in ("markov", "bayes", "perfect"):
        lead = against(summary, f"first_use {name}", f"he {name}")
        worst, most = best(summary, summary.panels, lead, least=True), best(summary, summary.panels, lead)
        if worst and most:
            claim = f"first_use against he, both {name}"
            made.append(Finding(f"{claim}: least lead", "", f"{worst.value:+.1f} points", worst.where, worst.value > -1))
            made.append(Finding(f"{claim}: largest lead", "", f"{most.value:+.1f} points", most.where, None))
    shared = against(summary, "first_use bayes", "he bayes")
    real = against(summary, "first_use markov", "he markov")
    recorded = [panel for panel in summary.panels if panel.split(",")[0] not in _GENERATED]
    made += reach("first_use against he, HoVer with shared context", 10, best(summary, ["HoVer, shared"], shared), " points")
    return [*made, *reach("first_use against he, recorded runs", 10, best(summary, recorded, real), " points")]


def _bound(summary: Summary) -> list[Finding]:
    """The distance of perfect predictions to the clairvoyant."""
    made: list[Finding] = []
    for policy in ("he", "first_use"):
        far = best(summary, summary.panels, against(summary, "clairvoyant", f"{policy} perfect"))
        if far:
            claim = f"clairvoyant ahead of {policy} with perfect predictions, at most"
            made.append(Finding(claim, "0 (regret)", f"{far.value:.1f} points", far.where, far.value < 3))
    return made


def _inverted_u(summary: Summary) -> list[Finding]:
    """The gain of he over LRU is larger somewhere inside than at both ends."""
    made: list[Finding] = []
    for panel in summary.panels:
        lead = against(summary, "he bayes", "lru")
        gains = [(g, x) for x in summary.xs(panel) if (g := lead(panel, x)) is not None]
        if len(gains) < 3:
            continue
        top, at = max(gains)
        first, last = gains[0][0], gains[-1][0]
        here = f"{first:+.1f} -> {top:+.1f} -> {last:+.1f} points"
        made.append(Finding(f"inverted U over concurrency: {panel}", "peak inside", here, f"peak at {at:g}", top > max(first, last) + 1))
    return made


def _plateau(summary: Summary) -> list[Finding]:
    """K: what other horizons lose against the best one."""
    made: list[Finding] = []
    for panel in summary.panels:
        for series in ("he bayes", "first_use bayes"):
            hits = {x: h for x in summary.xs(panel) if (h := summary.mean(panel, series, x)) is not None}
            if not {1.0, 3.0} <= hits.keys():
                continue
            top, longest = max(hits, key=hits.__getitem__), max(hits)
            here = ", ".join(f"K={k:g} {hits[k] - hits[top]:+.1f}" for k in (1.0, 3.0, longest))
            made.append(Finding(f"K plateau: {series}", "best at 3", f"best at {top:g}; {here}", panel, hits[3.0] >= hits[top] - 1))
    return made


def _graceful(summary: Summary) -> list[Finding]:
    made: list[Finding] = []
    for panel in summary.panels:
        for series in ("he perfect", "first_use perfect"):
            lead = against(summary, series, "lae")
            known = [(x, v) for x in summary.xs(panel) if (v := lead(panel, x)) is not None]
            if len(known) < 2:
                continue
            (x0, v0), (x1, v1), least = known[0], known[-1], min(v for _, v in known)
            here = f"{(v1 - v0) / (x1 - x0) / 10:+.1f} points per 10 %, least lead over LAE {least:+.1f}"
            made.append(Finding(f"graceful under noise, never below LAE: {series}", "yes", here, panel, least > -1))
    return made


def _regret(summary: Summary) -> list[Finding]:
    """0 with perfect predictions and at most linear in the error: the least slope of a line through the first regret that is above all."""
    made: list[Finding] = []
    for panel in summary.panels:
        for series in ("he perfect", "first_use perfect"):
            behind = against(summary, "belady", series)
            known = [(x, v) for x in summary.xs(panel) if (v := behind(panel, x)) is not None]
            if len(known) < 2:
                continue
            start, slope = known[0][1], max((v - known[0][1]) / (x - known[0][0]) for x, v in known[1:])
            here = f"{start:.1f} points without error, at most {slope / 10:.1f} more per 10 %"
            made.append(Finding(f"regret against Belady: {series}", "0, then at most linear", here, panel, start < 3))
    return made


def _aggressive(summary: Summary) -> list[Finding]:
    """Aggressive against conservative at 20 to 30 % noise, by TTFT: a load that was not needed delays those that are."""
    made: list[Finding] = []
    slower = against(summary, "aggressive", "conservative", "ttft_mean", ratio=True)
    for panel in summary.panels:
        worse = best(summary, [panel], lambda p, x: slower(p, x) if 0.2 <= x <= 0.3 else None)
        if worse:
            latency = against(summary, "aggressive", "conservative", "latency_mean", ratio=True)(panel, worse.x)
            here = f"{100 * (worse.value - 1):+.1f} % TTFT, {100 * ((latency or 1) - 1):+.1f} % latency"
            claim = "aggressive prefetch slower than conservative at 20 to 30 % noise"
            made.append(Finding(claim, "yes", here, worse.where, worse.value > 1.01))
    return made


def _prefetch_share(summary: Summary) -> list[Finding]:
    """HE close to PBKV."""
    far = best(summary, summary.panels, against(summary, "PBKV (he + conservative)", "he", "latency_gain"))
    if far is None:
        return []
    return [Finding("he is close to PBKV: latency gain that prefetch adds", "little", f"{far.value:+.3f}", far.where, abs(far.value) < 0.1)]


_JUDGES: Mapping[str, tuple[Callable[[Summary], list[Finding]], ...]] = {
    "pressure": (_gains, _paper_point, _pressure_band, _markov_between, _first_use, _bound),
    "concurrency": (_inverted_u,),
    "horizon": (_plateau,),
    "noise": (_graceful,),
    "host": (_prefetch_share,),
    "prefetch": (_aggressive,),
    "regret": (_regret,),
}
