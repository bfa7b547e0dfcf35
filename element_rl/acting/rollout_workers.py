"""The workers of all agents: processes that act side by side, started again where they were when
one dies. No JAX.

    workers.start(agent, worker, parameters, steps)     it acts for so many steps at most
    agent, worker, rollout = workers.next()             the next that has finished, as they arrive

Each worker has memory of its own that it shares with the main process: the parameters it acts with
are written there before it starts, its rollout is read there before it starts again. (The paper's
network is 14 MB: 1 ms to copy, 12 ms through a pipe.) With `num_workers=0` one worker per agent
acts in this process.
"""

import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from element_rl.acting.actors import parameter_key
from element_rl.acting.processes import (
    AnyWorker,
    Layout,
    LocalWorker,
    SharedArrays,
    Worker,
    WorkerFailure,
    stop_workers,
    that_answered,
)

POLL_SECONDS = 0.5  # between two looks at whether to stop, while nobody delivers
Who = tuple[int, int]  # agent and worker


class WorkerError(ValueError):
    """A worker failed more often than it may; the message says which and why."""


class Stopped(Exception):  # noqa: N818 (not an error: it was asked for)
    """Nobody has delivered yet, and nobody is waited for any more."""


@runtime_checkable
class AnyPlace(Protocol):
    """Where a worker is between two deliveries, so that another process can be there too."""

    def after(self, delivered: Any) -> Any: ...

    def to_arrays(self) -> dict[str, np.ndarray]: ...


@runtime_checkable
class ActingSettings(Protocol):
    """What every worker has to know: `RolloutSettings` of A3C, `GroupSettings` of PPO."""

    @property
    def actor(self) -> Callable[..., Any]:
        """What a worker serves, made of these settings, its agent's seed, its number, its place and
        its arrays: `act(steps)` says what is then in the arrays."""
        ...

    def array_layout(self) -> Layout: ...

    def first_place(self, worker: int) -> Any: ...

    def place_of(self, arrays: Mapping[str, np.ndarray]) -> Any: ...

    def delivered(self, arrays: Mapping[str, np.ndarray], facts: Any) -> Any: ...


class RolloutWorkers:
    """All workers of all agents. Places are where they were when they last delivered."""

    def __init__(
        self,
        settings: ActingSettings,
        seeds: Sequence[int],
        num_workers: int,
        restarts: int,
        places: Mapping[Who, AnyPlace] | None = None,
        seconds: float | None = None,
    ) -> None:
        """`seconds`: how long a worker may take for one rollout, its start included; None: for
        ever."""
        self.settings, self.seeds, self.restarts = settings, seeds, restarts
        self.seconds = seconds
        self._since: dict[Who, float] = {}  # when each was told to act
        self.places: dict[Who, Any] = {
            (agent, worker): settings.first_place(worker)
            for agent in range(len(seeds))
            for worker in range(max(num_workers, 1))
        } | dict(places or {})
        self.workers: dict[Who, AnyWorker] = {}
        self._arrays: dict[Who, dict[str, np.ndarray]] = {}
        self._busy: dict[Who, int] = {}  # steps each was told to act for
        self._finished: deque[Who] = deque()
        self._failures = dict.fromkeys(self.places, 0)  # in a row
        kind, started = Worker if num_workers else LocalWorker, list[AnyWorker]()
        self._finalizer = weakref.finalize(self, stop_workers, started)
        try:
            for who in self.places:
                shared, name = SharedArrays(settings.array_layout()), f"worker-{who[0]}-{who[1]}"
                self.workers[who] = kind(name, settings.actor, self._arguments(who), shared)
                self._arrays[who] = shared.views()
                started.append(self.workers[who])
        except BaseException:
            self.close()
            raise

    def start(
        self, agent: int, worker: int, parameters: Mapping[str, np.ndarray], steps: int
    ) -> None:
        for name, array in parameters.items():
            self._arrays[agent, worker][parameter_key(name)][...] = array
        self._begin((agent, worker), steps)

    def next(self, stop: Callable[[], bool] = lambda: False) -> tuple[int, int, Any]:
        """Blocks until a worker has delivered. The rollout's arrays are the worker's own until it
        is started again. Raises `Stopped` where it is told to stop before any has."""
        while True:
            while not self._finished:
                assert self._busy, "nobody acts"
                busy = {self.workers[who]: who for who in self._busy}
                answered = that_answered(list(busy), POLL_SECONDS)
                self._finished.extend(busy[worker] for worker in answered)
                if not answered and stop():
                    raise Stopped
                if not answered:
                    self._restart_hanging()
            who = self._finished.popleft()
            steps = self._busy.pop(who)
            try:
                facts = self.workers[who].receive()
            except WorkerFailure as failure:
                self._start_again(who, steps, failure)
                continue
            self._failures[who] = 0
            delivered = self.settings.delivered(self._arrays[who], facts)
            self.places[who] = self.places[who].after(delivered)
            return *who, delivered

    def close(self) -> None:
        self._finalizer()

    def _begin(self, who: Who, steps: int) -> None:
        self.workers[who].send("act", steps)
        self._busy[who], self._since[who] = steps, time.monotonic()

    def _arguments(self, who: Who) -> tuple[ActingSettings, int, int, Any]:
        agent, worker = who
        return self.settings, self.seeds[agent], worker, self.places[who]

    def _restart_hanging(self) -> None:
        """Those that have been at one rollout for longer than they may."""
        if self.seconds is None:
            return
        now = time.monotonic()
        for who in [who for who in self._busy if now - self._since[who] > self.seconds]:
            reason = f"its environment did not answer for {self.seconds:g} s (--env-timeout)."
            self._start_again(who, self._busy.pop(who), WorkerFailure(reason, "call"))

    def _start_again(self, who: Who, steps: int, failure: WorkerFailure) -> None:
        self._failures[who] += 1
        agent, worker = who
        if self._failures[who] > self.restarts:
            times = f"{self._failures[who]} times in a row" if self.restarts else "once"
            reason = f"its process died ({failure})." if failure.when == "died" else str(failure)
            raise WorkerError(
                f"Worker {worker} of agent {agent} failed {times}, the last time because {reason}"
            ) from failure
        self.workers[who].restart(*self._arguments(who))
        self._begin(who, steps)
