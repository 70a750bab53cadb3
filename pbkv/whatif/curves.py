"""Miss-ratio curves: what a recording finds in the cache by pool size and policy, and what nobody can better."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from pbkv.errors import UsageError
from pbkv.whatif.account import at_size, call_blocks, readable
from pbkv.whatif.bound import Bound, NextReads, plain
from pbkv.whatif.hitrates import replay_cache
from pbkv.whatif.order import Turn, in_order, order_of
from pbkv.whatif.recording import Recording
from pbkv.whatif.setting import Setting
from pbkv.whatif.sources import check_policy
from pbkv.whatif.stack import lru_hits

#: Curves that are no policy's: least recently used by blocks, and the clairvoyant bound.
BLOCKS, BOUND = "lru by blocks", "bound"
#: Pool sizes of one set of curves.
MAX_SIZES = 1000


class Point(NamedTuple):
    """Of the prompt tokens of all calls the share that was on the device; `refused` calls did not fit into the pool and are left out."""

    curve: str
    device_tokens: int
    hit: float
    refused: int = 0

    @property
    def miss(self) -> float:
        """The share that was not."""
        return 1.0 - self.hit


def curves(
    recording: Recording, sizes: Sequence[int], policies: Sequence[str] = ("lru",), *, setting: Setting | None = None,
    bound: bool = True, stop: Callable[[], bool] | None = None, progress: Callable[[int], None] | None = None,
) -> list[Point]:
    """BLOCKS, then each policy, then BOUND at device pools of `sizes` tokens; the device tier alone. What `setting` says beside policy and
    pools holds for all. `progress` is told the number of points; after `stop()` no further ones are made.

    BOUND is Belady's rule on leaves in this very order, blind to the sizes of nodes as all policies here are. Raises UsageError for sizes
    that cannot be, and for policies that need agents where the recording has none.
    """
    if not 1 <= len(sizes) <= MAX_SIZES:
        raise UsageError(f"{len(sizes)} pool sizes: expected 1 to {MAX_SIZES}")
    for policy in policies:
        check_policy(recording, policy)
    base = setting or Setting()
    for size in sizes:
        replace(base, device_tokens=size).engine_on(recording)
    recording = plain(recording) if bound else recording
    turns = order_of(recording, base.concurrency)
    points = block_curve(recording, sizes, turns)
    for curve in (*policies, *((BOUND,) if bound else ())):
        for size in sizes:
            if stop is not None and stop():
                return points
            points.append(_point(recording, base, turns, curve, size))
            if progress is not None:
                progress(len(points))
    return points


def block_curve(recording: Recording, sizes: Sequence[int], turns: Sequence[Turn]) -> list[Point]:
    """Least recently used with blocks instead of nodes, outputs among them, at all sizes from one pass (pbkv.whatif.stack). No call is
    refused: of one that is longer than the pool, what fits is kept.
    """
    calls, page = in_order(recording, turns), recording.engine.page_size
    hits = lru_hits(readable(call_blocks(calls), calls, page))
    prompt = sum(call.prompt_tokens for call in calls)
    return [Point(BLOCKS, size, at_size(hits, size // page) * page / prompt) for size in sizes]


def _point(recording: Recording, base: Setting, turns: Sequence[Turn], curve: str, size: int) -> Point:
    setting = replace(base, policy="lru" if curve == BOUND else curve, device_tokens=size, host_tokens=0)
    reads = NextReads(recording, turns) if curve == BOUND else None
    bound = Bound(reads) if reads else None
    calls = replay_cache(recording, setting, turns=turns, bound=bound, each=reads.reach if reads else None).calls
    prompt = int(calls["prompt"].sum())
    return Point(curve, size, int(calls["device_hit"].sum()) / prompt, len(turns) - len(calls))
