"""The experiments of the paper (arXiv 2605.06472) and those that ask what beats it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pbkv.bench.cell import Cell
from pbkv.bench.experiment import Experiment, Point
from pbkv.bench.regimes import Regime, decoding, finance, generated, hover, recorded, swe
from pbkv.workloads.layouts import LAYOUTS

NOISE = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
HORIZONS = (1, 2, 3, 4, 6, 8)
DISCOUNTS = (0.5, 0.65, 0.8, 1.0)
LOADS = (24, 48, 64, 80, 96, 128)
ABLATIONS = ("hold", "stale", "structural_reads", "first_passage")


@dataclass(frozen=True)
class Contender:
    """A curve: policy and predictor, and the parts of the policy that are off."""

    policy: str
    predictor: str = ""
    parts: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        name = self.policy + (f" {self.predictor.rpartition('/')[2].removeprefix('dir:')}" if self.predictor else "")
        return name + "".join(f" -{part}" for part in self.parts)

    def of(self, cell: Cell) -> Cell:
        """The cell run by this contender."""
        return replace(cell, policy=self.policy, predictor=self.predictor or "markov", parts=self.parts)


BASELINES = (Contender("lru"), Contender("lae"), Contender("clairvoyant"))
STATIC = (Contender("session_lae"), Contender("kvflow", "bayes"), Contender("kvflow_all", "bayes"))


def scored(policy: str, *predictors: str) -> list[Contender]:
    """One policy with several predictors."""
    return [Contender(policy, predictor) for predictor in predictors]


@dataclass(frozen=True)
class Scope:
    """What to run: recorded tables of agent calls by name, folders of trained predictors by workload name, or the short version of all."""

    quick: bool = False
    traces: tuple[tuple[str, str], ...] = ()
    trained: tuple[tuple[str, str], ...] = ()

    def predictors(self, regime: Regime, *names: str) -> list[str]:
        """Of `names`, what is possible in this regime; "trained" stands for those made for it. A trace has no Bayes-optimal predictor."""
        source = regime.cell.source
        possible = [name for name in names if name != "trained" and not (name == "bayes" and source.trace)]
        return [*possible, *(f"dir:{folder}" for name, folder in self.trained if name == source.name and "trained" in names)]


def experiments(scope: Scope) -> list[Experiment]:
    """All of them, in the order of the report."""
    return [
        pressure(scope), concurrency(scope), backbones(scope), horizon(scope), discount(scope), noise(scope), host(scope), prefetch(scope),
        replay(scope), regret(scope), ablation(scope), hardware(scope),
    ]


def recordings(scope: Scope) -> list[Regime]:
    """Regimes of recorded runs: HyperAgent-like tables in all layouts."""
    return [recorded(name, path, layout) for name, path in scope.traces for layout in LAYOUTS]


def _along(regime: Regime, contenders: Iterable[Contender], shares: Sequence[float] = (), **changes: object) -> list[Point]:
    return [
        Point(regime.name, contender.label, share, contender.of(regime.sized(share, **changes)))
        for share in shares or regime.shares
        for contender in contenders
    ]


def pressure(scope: Scope) -> Experiment:
    """Every policy on every workload along the size of the pool; session_lae and KVFlow where a dynamic and the static graph show them."""
    regimes = [hover("private"), hover("shared"), swe("shared"), finance("shared")] if scope.quick else [*generated(), *recordings(scope)]
    points: list[Point] = []
    for regime in regimes:
        trained = ("trained",) if regime.cell.source.trace else ()
        names = scope.predictors(regime, *(("bayes",) if scope.quick else ("markov", "bayes", "perfect", *trained)))
        static = STATIC if regime.cell.source.name == "finance" or regime.name in ("HoVer, private", "HoVer, shared") else ()
        contenders = [*BASELINES, *static, *scored("he", *names), *scored("first_use", *names)]
        points += _along(regime, contenders, regime.shares[1::2] if scope.quick else ())
    return Experiment("pressure", "Policies along the size of the device tier", "device tier / live tokens", tuple(points))


def concurrency(scope: Scope) -> Experiment:
    """A fixed pool under a growing number of workflows."""
    points: list[Point] = []
    contenders = [Contender("lru"), Contender("lae"), Contender("clairvoyant"), *scored("he", "bayes"), *scored("first_use", "bayes")]
    for regime, share in ((hover("private"), 0.5), (hover("group"), 0.55)):
        pool = regime.sized(share).device_tokens
        for load in LOADS[::2] if scope.quick else LOADS:
            cell = replace(regime.cell, device_tokens=pool, concurrency=load, warm=load, workflows=100)
            points += [Point(regime.name, c.label, float(load), c.of(cell)) for c in contenders]
    return Experiment("concurrency", "A pool of fixed size under load", "concurrent workflows", tuple(points))


def backbones(scope: Scope) -> Experiment:
    """Predictors from none to perfect."""
    points: list[Point] = []
    some = [hover("private")] if scope.quick else [hover("private"), hover("shared"), *recordings(scope)[:1]]
    for regime in some:
        names = scope.predictors(regime, "uniform", "online", "markov", "bayes", "perfect", "trained")
        contenders = [Contender("lru"), Contender("lae"), *scored("he", *names), *scored("first_use", *names)]
        points += _along(regime, contenders, regime.shares[2:3] if scope.quick else regime.shares[1:4:2])
    return Experiment("backbones", "Predictors", "device tier / live tokens", tuple(points))


def _two(scope: Scope) -> list[tuple[Regime, float]]:
    """Where one parameter is varied: a private layout and a shared one, in the steep part of their curves."""
    return [(hover("private"), 0.5)] if scope.quick else [(hover("private"), 0.5), (hover("shared"), 0.36)]


def _varied(scope: Scope, name: str, values: Sequence[float]) -> tuple[Point, ...]:
    points: list[Point] = []
    names = ("bayes",) if scope.quick else ("bayes", "perfect")
    for regime, share in _two(scope):
        for value in values:
            cell = regime.sized(share, **{name: value})
            points += [Point(regime.name, c.label, float(value), c.of(cell)) for c in (Contender("lru"), Contender("lae"))]
            points += [Point(regime.name, c.label, float(value), c.of(cell)) for c in (*scored("he", *names), *scored("first_use", *names))]
    return tuple(points)


def horizon(scope: Scope) -> Experiment:
    """K from 1 to 8."""
    return Experiment("horizon", "Horizon K", "K, steps", _varied(scope, "k", HORIZONS[::2] if scope.quick else HORIZONS))


def discount(scope: Scope) -> Experiment:
    """gamma from 0.3 to 1."""
    return Experiment("discount", "Confidence decay gamma", "gamma", _varied(scope, "gamma", DISCOUNTS[1::2] if scope.quick else DISCOUNTS))


def noise(scope: Scope) -> Experiment:
    """Perfect predictions, more and more of them wrong; the clairvoyant shows what is lost to the best there is."""
    points: list[Point] = []
    regimes = _two(scope) if scope.quick else [*_two(scope), (hover("group"), 0.55)]
    for regime, share in regimes:
        cell = regime.sized(share)
        for p in NOISE[::3] if scope.quick else NOISE:
            flat = [Contender("lru"), Contender("lae"), Contender("clairvoyant")]
            spoilt = [*scored("he", "perfect"), *scored("first_use", "perfect")]
            points += [Point(regime.name, c.label, p, c.of(cell)) for c in flat]
            points += [Point(regime.name, c.label, p, replace(c.of(cell), noise=p)) for c in spoilt]
    return Experiment("noise", "Wrong predictions", "share of predictions that are wrong", tuple(points))


def host(scope: Scope) -> Experiment:
    """A host tier behind a small device tier: policies, host order, and prefetch on top."""
    regime = decoding()
    points: list[Point] = []
    for share in (1.0,) if scope.quick else (0.5, 0.7, 1.0):
        cell = replace(regime.sized(0.3), host_tokens=regime.sized(share).device_tokens)
        he, first = (Contender("he", "bayes").of(cell), Contender("first_use", "bayes").of(cell))
        runs = {
            "lru": Contender("lru").of(cell), "lae": Contender("lae").of(cell),
            "he": he, "he, host by score": replace(he, host_order="score"),
            "PBKV (he + conservative)": replace(he, prefetch="conservative"), "he + aggressive": replace(he, prefetch="aggressive"),
            "first_use": first,
            "first_use, host by score": replace(first, host_order="score"),
            "first_use, host by score + conservative": replace(first, host_order="score", prefetch="conservative"),
        }
        points += [Point(regime.name, name, share, run) for name, run in runs.items()]
    return Experiment("host", "Host tier and prefetch", "host tier / live tokens", tuple(points))


def prefetch(scope: Scope) -> Experiment:
    """Conservative against aggressive prefetch under wrong predictions: where an eviction costs nothing, where it waits for its copy, and
    on a slower link whose directions share their rate.
    """
    regime = decoding()
    points: list[Point] = []
    base = replace(regime.sized(0.3), host_tokens=regime.sized(1.0).device_tokens)
    links = {
        "write through, 25 GB/s": base, "write back, 25 GB/s": replace(base, write_policy="write_back"),
        "write back, 12 GB/s shared by both directions": replace(base, write_policy="write_back", link_bytes_per_s=12e9, link_share=0.5),
    }
    for name, cell in list(links.items())[:2] if scope.quick else links.items():
        for p in (0.0, 0.3) if scope.quick else (0.0, 0.2, 0.3, 0.5):
            run = replace(Contender("he", "perfect").of(cell), noise=p)
            points += [Point(name, mode, p, replace(run, prefetch=mode)) for mode in ("off", "conservative", "aggressive")]
    return Experiment("prefetch", "Prefetch under wrong predictions", "share of predictions that are wrong", tuple(points), base="off")


def replay(scope: Scope) -> Experiment:
    """A recorded order of calls, one at a time, without time: the exact Belady bound, and each policy's distance to it."""
    points: list[Point] = []
    regimes = [hover("private")] if scope.quick else [*(hover(layout) for layout in LAYOUTS), *recordings(scope)[:1]]
    for regime in regimes:
        names = scope.predictors(regime, "bayes", "perfect")
        contenders = [Contender("lru"), Contender("lae"), Contender("belady"), *scored("he", *names), *scored("first_use", *names)]
        for share in regime.shares[1:3:2] if scope.quick else regime.shares[:4:2]:
            cell = replace(regime.sized(share), replay=True)
            points += [Point(regime.name, c.label, share, c.of(cell)) for c in contenders]
    return Experiment("replay", "Distance to the offline bound", "device tier / live tokens", tuple(points))


def regret(scope: Scope) -> Experiment:
    """The distance to Belady's rule in one recorded order, as perfect predictions are spoilt: the paper's guarantee is about this."""
    points: list[Point] = []
    for regime, share in _two(scope) if scope.quick else [*_two(scope), (hover("group"), 0.55)]:
        cell = replace(regime.sized(share), replay=True)
        spoilt = [*scored("he", "perfect"), *scored("first_use", "perfect")]
        for p in NOISE[::3] if scope.quick else NOISE[::2]:
            points += [Point(regime.name, c.label, p, c.of(cell)) for c in (Contender("lru"), Contender("belady"))]
            points += [Point(regime.name, c.label, p, replace(c.of(cell), noise=p)) for c in spoilt]
    return Experiment("regret", "Regret under wrong predictions", "share of predictions that are wrong", tuple(points))


def ablation(scope: Scope) -> Experiment:
    """What each part of first_use is worth."""
    points: list[Point] = []
    for regime in [hover("shared")] if scope.quick else [*generated(), *recordings(scope)]:
        name = scope.predictors(regime, "bayes", "markov")[0]
        full = Contender("first_use", name)
        without = [replace(full, parts=(part,)) for part in ABLATIONS]
        contenders = [Contender("lru"), Contender("lae"), Contender("he", name), full, *without, replace(full, parts=ABLATIONS)]
        points += _along(regime, contenders, (regime.shares[2 if regime.cell.source.name == "hover" else 1],))
    return Experiment("ablation", "Parts of first_use", "device tier / live tokens", tuple(points))


def hardware(scope: Scope) -> Experiment:
    """The same curve under roofline timing of the paper's model and GPUs."""
    regime = hover("private")
    contenders = [Contender("lru"), Contender("lae"), *scored("he", "bayes"), *scored("first_use", "bayes"), Contender("clairvoyant")]
    points: list[Point] = []
    for timing in () if scope.quick else ("qwen3-32b@a6000/8", "qwen3-14b@h100/1"):
        along = _along(regime, contenders, regime.shares[1:5:2], timing=timing)
        points += [replace(point, panel=f"HoVer, private, {timing}") for point in along]
    return Experiment("hardware", "Timing models", "device tier / live tokens", tuple(points))
