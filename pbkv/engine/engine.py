"""The embedded engine: one GPU server in virtual time. No thread, no wall clock, no I/O: everything happens in `submit` and `advance`."""

import math
from collections.abc import Callable

from pbkv.engine.copies import Clock, LinkCopies
from pbkv.engine.follower import Follower
from pbkv.engine.link import Link
from pbkv.engine.pools import Pool
from pbkv.engine.reporter import Reporter
from pbkv.engine.requests import Call, EngineRequest, Finished
from pbkv.engine.scheduler import Chunk, Scheduler
from pbkv.engine.settings import EngineSettings
from pbkv.engine.tiers import TwoTierTree
from pbkv.engine.timing import attention_pairs
from pbkv.engine.view import LoadRoom, NodeView
from pbkv.errors import UsageError
from pbkv.events.writer import EventWriter
from pbkv.knobs import KnobSet
from pbkv.manager import CacheManager
from pbkv.predictor.base import Predictor
from pbkv.predictor.markov import OnlineMarkov
from pbkv.prefetch.planner import COOLDOWN_STEPS

#: Engine seconds between looks for workflows that have been idle for too long.
TICK_S = 1.0


class Engine:
    """`now` is engine time in seconds: the end of the last step. Decode steps between which nothing can change are taken at once."""

    def __init__(
        self, settings: EngineSettings, knobs: KnobSet | None = None, predictor: Predictor | None = None, *,
        timer: Callable[[], int] | None = None,
    ) -> None:
        """`timer`: nanosecond clock of durations in events, by default engine time, in which deciding takes none."""
        timing = settings.timing
        self.settings, self.timing = settings, timing
        self.clock = Clock()
        self.knobs = knobs or KnobSet()
        self.link = Link(timing.link_bytes_per_s, settings.link_shared)
        self.manager = CacheManager(
            NodeView(), self.knobs, predictor or OnlineMarkov(), bytes_per_token=timing.bytes_per_token,
            timer=timer or (lambda: int(self.clock.now * 1e9)),
        )
        self.copies = LinkCopies(self.link, self.clock, settings.page_size * timing.bytes_per_token)
        self.follower = Follower(self.manager, settings.page_size)
        self.reporter: Reporter | None = None
        self.retractions = 0
        self._calls: dict[int, Call] = {}
        self._tiered = settings.host_tokens > 0
        self._writes_back = self._tiered and settings.write_policy == "write_back"
        self.arrivals = 0  # entries into the queue, retracted calls' too
        self._finished: list[Finished] = []
        self._late: list[tuple[Call, bool]] = []  # results that are taken in after the next step is chosen; True = the call is over
        self.ticked = 0.0  # when idle workflows were looked for last
        self._plant()

    def _plant(self) -> None:
        """An empty tree and nothing running."""
        settings = self.settings
        page = settings.page_size
        self.tree = TwoTierTree(
            self.manager, Pool(settings.device_tokens, page), Pool(settings.host_tokens, page), page, settings.write_policy, self.copies,
        )
        self.copies.tree = self.tree
        self.scheduler = Scheduler(self.tree, settings)
        self._room = LoadRoom(self.tree, self.scheduler)

    def report_to(self, writer: EventWriter) -> None:
        """Report through `writer`, which must take its clocks from this engine for a log that is the same every time."""
        self.reporter = Reporter(self, writer)

    # ---- coming and going --------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.clock.now

    def submit(self, request: EngineRequest, at: float | None = None) -> None:
        """The call arrives at `at`, by default now; `at` may lie inside the step that ended now. Raises UsageError if it can never run."""
        self._check(request)
        self.arrivals += 1
        call = self._calls[request.id] = Call(request, self.arrivals, self.clock.now if at is None else at)
        self.scheduler.waiting.append(call)
        self.follower.queued(call, self.tree)

    def _check(self, request: EngineRequest) -> None:
        page, size = self.settings.page_size, self.tree.device.size
        prompt, output, most = request.prompt_tokens, request.output_tokens, max(request.max_tokens, request.output_tokens)
        if prompt < 1 or output < 1:
            raise UsageError(f"call of {prompt} prompt and {output} output tokens: expected at least one of each")
        if len(request.pages) != prompt // page or len(request.output_pages) != (prompt + output - 1) // page - prompt // page:
            got = f"{len(request.pages)} + {len(request.output_pages)} page ids"
            raise UsageError(f"call {request.id}: got {got}, which do not fit {prompt} + {output} tokens in pages of {page}")
        if prompt + most + 2 * page >= size * page:
            raise UsageError(f"call of {prompt} prompt and up to {most} output tokens: the device pool has {size * page}; shorten it")
        if request.id in self._calls:
            raise UsageError(f"call {request.id}: another call with this id is in the engine; number calls apart")

    def abort(self, request_id: int) -> Finished | None:
        """Take a call out, wherever it is; None = no such call."""
        self._settle()
        call = self._calls.get(request_id)
        if call is None:
            return None
        self.scheduler.drop(call)
        return self._over(call, aborted=True)

    def close(self, workflow: str) -> bool:
        """The workflow is over; False when no such workflow is live."""
        return self.manager.state.close(workflow)

    def flush(self) -> bool:
        """Empty the cache; refused (False) while calls are in the engine, as in SGLang."""
        if self._calls:
            return False
        self.manager.flushed()
        self.copies.drop()
        self._plant()
        if self.reporter:
            self.reporter.flushed()
        return True

    def generated(self, request_id: int) -> int:
        """Tokens a call has generated by now; 0 = none, or no such call."""
        call = self._calls.get(request_id)
        if call is None:
            return 0
        return self.scheduler.decoding.generated(call) if call in self.scheduler.decoding.calls else call.generated

    @property
    def running(self) -> int:
        """Calls that decode or prefill."""
        return len(self._calls) - len(self.scheduler.waiting)

    @property
    def waiting(self) -> int:
        """Calls in the queue."""
        return len(self.scheduler.waiting)

    # ---- time --------------------------------------------------------------------------------------------------------------

    def next_event(self) -> float | None:
        """When the next step can begin: now while there are calls, else None = idle."""
        return self.clock.now if self._calls else None

    def advance(self, until: float = math.inf) -> list[Finished]:
        """Run the steps that begin before `until`, up to the first in which calls end; returns these calls. An idle engine's clock goes to
        `until`; otherwise it may end up to one step behind it.
        """
        self._follows = self.follows()
        while self.clock.now < until:
            if self._calls:
                if not self._step(until) and not self._wait(until):
                    break
            elif math.isfinite(until):
                self.clock.now = until
            else:
                break
            if self.clock.now - self.ticked >= TICK_S:
                self.tick()
            if self._finished:
                break
        finished, self._finished = self._finished, []
        return finished

    def tick(self) -> None:
        """Retire workflows that have been idle for too long."""
        self.ticked = self.clock.now
        self.manager.state.tick(self.clock.now)
        if self.reporter:
            self.reporter.step_ended()

    def follows(self) -> bool:
        """Whether anybody wants to know which nodes belong to which workflow. Plain LRU alone does not."""
        prefetches = self._tiered and self.knobs["prefetch"] != "off"
        manager = self.manager
        return prefetches or manager.policy.name != "lru" or manager.telemetry is not None or manager.recorder is not None

    def _step(self, until: float) -> bool:
        if self._tiered and self.copies.reap():
            self.manager.prefetch.reap(self.copies.loading)
        scheduler = self.scheduler
        calls = scheduler.decoding.calls
        batch = None
        if scheduler.chunked is not None or (scheduler.waiting and not (scheduler.full and calls)):
            batch = scheduler.prefill_batch()
        if batch:
            self._settle()
            self._prefill(batch)
        elif calls:
            self._decode(until)
        else:
            return self._settle()
        return True

    def _settle(self) -> bool:
        """Take in the results of the last step, which `overlap` leaves until now; True when there were some."""
        if not self._late:
            return False
        late, self._late, self.scheduler.leaving = self._late, [], 0
        for call, over in late:
            if over:
                self._finish(call)
            else:
                self._checkpoint(call)
        return True

    def _wait(self, until: float) -> bool:
        """Nothing fits and nothing runs: only copies in flight can change that."""
        done = self.copies.next_done
        if done is None:
            raise RuntimeError("calls wait, nothing runs and nothing is in flight: the accounts of the engine are wrong")
        self.clock.now = max(self.clock.now, min(done, until))
        return done < until

    # ---- prefill -----------------------------------------------------------------------------------------------------------

    def _prefill(self, batch: list[Chunk]) -> None:
        clock, started = self.clock, self.clock.now
        self.manager.step += 1
        if self._follows:
            self._admitted(batch)
        tokens, pairs = 0, 0.0
        for call, new in batch:
            tokens += new
            pairs += attention_pairs(new, call.done)
            if call.admitted < 0:
                call.admitted = started
        compute = self.timing.prefill_s(tokens, pairs)
        clock.now = self._prefill_end(started, compute)
        if self.reporter:
            self.reporter.step_begins("prefill", started, clock.now, len(batch), tokens)
        for call, new in batch:
            self._prefilled(call, new)
        if self.reporter:
            self.reporter.step_ended()

    def _admitted(self, batch: list[Chunk]) -> None:
        for call, _ in batch:
            self.follower.admitted(call)

    def _prefill_end(self, started: float, compute: float) -> float:
        """Computing waits for copies: for blocking write backs as a whole, for loads layer by layer where the timing has layers."""
        begins = max(started, self.copies.waited_until)
        loaded = self.link.h2d_free_at
        if loaded <= begins:
            return begins + compute
        layers = self.timing.layers
        return max(begins + compute, loaded + compute / layers) if layers else loaded + compute

    def _prefilled(self, call: Call, new: int) -> None:
        complete = self.scheduler.prefilled(call, new)
        late = complete and self.settings.overlap
        if late:
            self._late.append((call, False))
        else:
            self._checkpoint(call)
        if not complete:
            return
        if call.first_token < 0:
            call.first_token = self.clock.now
        if call.generated < call.request.output_tokens:
            self.scheduler.decoding.join(call)
        else:
            self._ends(call)

    def _checkpoint(self, call: Call) -> None:
        self.scheduler.checkpoint(call)
        if self._follows:
            self.follower.checkpoint(call, self.tree)

    # ---- decode ------------------------------------------------------------------------------------------------------------

    def _decode(self, until: float) -> None:
        scheduler, started = self.scheduler, self.clock.now
        planned, seconds = self._steps_until(until, self._prefetch(1 if self._late else scheduler.decoding.steps_to_end()))
        steps = scheduler.make_decode_room(planned)
        if self._settle() and not steps:
            return  # what has ended may have given the room
        if not steps:
            self._retract()
            return
        if steps != planned:
            seconds = self._decode_s(steps)
        self.manager.step += steps
        calls = len(scheduler.decoding.calls)
        begins = max(started, self.copies.waited_until)
        self.clock.now = begins + seconds
        if self.reporter:
            self.reporter.step_begins("decode", started, self.clock.now, calls, steps * calls)
        for call in scheduler.decoded(steps):
            scheduler.decoding.leave(call)
            self._ends(call)
        if self.reporter:
            self.reporter.step_ended()

    def _decode_s(self, steps: int) -> float:
        """Duration of the next `steps` steps. It grows by the same amount from step to step, so the one in the middle stands for all."""
        decoding = self.scheduler.decoding
        calls = len(decoding.calls)
        return steps * self.timing.decode_s(calls, decoding.kv_tokens + calls * (steps - 1) / 2)

    def _steps_until(self, until: float, steps: int) -> tuple[int, float]:
        """At most `steps`, fewer if a step would begin at `until` or later, or if a copy completes before an eviction is needed; and the
        seconds they take.
        """
        scheduler, free = self.scheduler, self.tree.device.free
        if self._writes_back and scheduler.pages_wanted(steps) > free:
            # A write back delays the step that needs the room: those before it are taken first, then it alone.
            spare = free - len(scheduler.decoding.calls)
            steps = 1 if spare < 0 else scheduler.decoding.steps_within(spare, steps - 1) + 1
        done = self.copies.next_done if self._tiered else None
        if done is not None and scheduler.pages_wanted(steps) > free:
            until = min(until, done)
        # In the very sums that the clock will be set to: `until` may be the end of a step as somebody computed it before.
        begins, seconds = max(self.clock.now, self.copies.waited_until), self._decode_s(steps)
        if begins + seconds <= until:
            return steps, seconds
        steps = min(steps, max(1, math.ceil(max(until - begins, 0.0) / self._decode_s(1)) + 1))
        while steps > 1 and begins + self._decode_s(steps - 1) >= until:
            steps -= 1
        return steps, self._decode_s(steps)

    def _prefetch(self, steps: int) -> int:
        """With an idle link and an empty queue, decide what to load now; returns after how many steps to decide again."""
        knobs, prefetch = self.knobs, self.manager.prefetch
        if not self._tiered or knobs["prefetch"] == "off" or self.scheduler.waiting:
            return steps
        now = self.clock.now
        if not self.link.idle(now):
            prefetch.link_busy()
        else:
            self._room.open()
            prefetch.decide(self._room)
        busy_until = max(self.link.h2d_free_at, self.link.d2h_free_at)
        if busy_until > now:
            return max(1, min(steps, math.ceil((busy_until - now) / self._decode_s(1))))
        return min(steps, COOLDOWN_STEPS)

    def _retract(self) -> None:
        waiting = self.scheduler.waiting
        before = len(waiting)
        hopeless = self.scheduler.retract()
        for n in range(before, len(waiting)):
            self.retractions += 1
            self.arrivals += 1
            waiting[n].number = self.arrivals
            self.follower.queued(waiting[n], self.tree)
        if hopeless is not None:
            self.scheduler.drop(hopeless)
            self._finished.append(self._over(hopeless, aborted=True))

    # ---- the end -----------------------------------------------------------------------------------------------------------

    def _ends(self, call: Call) -> None:
        if self.settings.overlap:
            self._late.append((call, True))
            self.scheduler.leaving += 1
        else:
            self._finish(call)

    def _finish(self, call: Call) -> None:
        self.scheduler.finish(call)
        if self._follows and call.step >= 0:
            self.follower.checkpoint(call, self.tree, output=True)
        self._finished.append(self._over(call, aborted=False))

    def _over(self, call: Call, *, aborted: bool) -> Finished:
        del self._calls[call.request.id]
        ended = Finished(
            call.request, call.arrived, call.admitted, call.first_token, self.clock.now, call.device_hit, call.host_hit, call.generated,
            aborted, call.retracted,
        )
        if self.reporter:
            self.reporter.call_ended(call, ended)
        if aborted:
            self.follower.admitted(call)
        if call.step >= 0:
            self.follower.ended(call)
        return ended
