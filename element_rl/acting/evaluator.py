"""Episodes of many stored policies in an environment, in processes of their own, while the device
learns.

    with Evaluator("Hopper-v5", {}, num_workers=8) as evaluator:
        evaluator.start(parameters, seeds)      # returns at once
        ...                                     # let the device work
        returns, lengths = evaluator.wait()     # or `results()`: what `run` says of each episode

Policies are deterministic unless told otherwise: the mean of a squashed Gaussian, or the action of
the highest value. An episode depends on its policy and its seed, and on nothing else: neither on
the number of processes nor on which of them runs it. Nothing here imports JAX.
"""

import queue
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import FrameStackObservation
from jaxtyping import Float64, Int64

from element_rl.acting.cores import own_cores
from element_rl.acting.episode import run_episode
from element_rl.acting.policies import Parameters, Policy, policy_of
from element_rl.acting.processes import Worker, WorkerFailure, kill_workers
from element_rl.envs.make import EnvMaker, env_maker, make_env, make_plain_env

WORTH_PROCESSES = 20_000  # steps; with fewer, starting processes takes about as long as acting here

Seed = tuple[int, int, int]  # of the agent, the update, the episode
# the last argument: deterministic
RunEpisode = Callable[[gymnasium.Env, Policy, Seed, bool], Any]


class Evaluator:
    """Worker processes for episodes; `num_workers` 0: none, episodes are run by `wait`."""

    def __init__(
        self,
        env: str,
        env_options: Mapping[str, Any],
        num_workers: int,
        make: Callable[..., gymnasium.Env] = make_env,
        run: RunEpisode = run_episode,
    ) -> None:
        """`make` the environment, and `run` an episode in it; both are functions of modules that
        load no JAX."""
        self._arguments = (env_maker(env, env_options, make), run)
        runner = EpisodeRunner(*self._arguments)  # refuses what cannot be made
        self._local = runner if num_workers == 0 else None
        if num_workers:
            runner.close()
        self._num_workers = num_workers
        self._workers: list[Worker] = []
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(max(num_workers, 1))  # one waits for each process
        self._waiting: list[tuple[Parameters, Seed, bool]] = []
        self._futures: list[Future[Any]] = []
        self._shape = (0, 0)
        self._finalizer = weakref.finalize(self, _end, self._threads, self._workers)

    def start(
        self, parameters: Parameters, seeds: Sequence[Sequence[Seed]], deterministic: bool = True
    ) -> None:
        """Begin an episode per agent and seed; `parameters` [P, ...] are copied."""
        self._shape = (len(seeds), len(seeds[0]))
        for agent, agent_seeds in enumerate(seeds):
            policy = {name: np.array(array[agent]) for name, array in parameters.items()}
            self._waiting += [(policy, seed, deterministic) for seed in agent_seeds]
        if self._local is not None:
            return
        # processes are born here, when there are episodes for them
        while len(self._workers) < min(self._num_workers, len(self._waiting)):
            name = f"evaluator-{len(self._workers)}"
            self._workers.append(Worker(name, EpisodeRunner, self._arguments))
            self._idle.put(self._workers[-1])
        self._futures = [
            self._threads.submit(_episode, self._idle, episode) for episode in self._waiting
        ]
        self._waiting = []

    def done(self) -> bool:
        """Whether `wait` would return at once."""
        return not self._waiting and not self.working()

    def working(self) -> bool:
        """Whether processes are at work on episodes; without processes it is `wait` that is."""
        return not all(future.done() for future in self._futures)

    def results(self) -> list[Any]:
        """What `run` returned of the episodes begun last, agent by agent."""
        try:
            results = [future.result() for future in self._futures]
        except WorkerFailure as failure:
            if failure.when == "died":
                raise ValueError(
                    "A process that evaluates died, perhaps for want of memory: try again with "
                    "fewer --workers."
                ) from failure
            raise ValueError(f"An episode could not be evaluated: {failure}") from failure
        if self._local is not None:
            results = [self._local.episode(*episode) for episode in self._waiting]
        self._futures, self._waiting = [], []
        return results

    def wait(self) -> tuple[Float64[np.ndarray, "P E"], Int64[np.ndarray, "P E"]]:
        """Returns and lengths of the episodes begun last, where that is what `run` returns."""
        results = self.results()
        returns, lengths = (
            np.array(column).reshape(self._shape) for column in zip(*results, strict=True)
        )
        return returns.astype(np.float64), lengths.astype(np.int64)

    def close(self) -> None:
        """End the processes, without waiting for the episodes under way."""
        self._finalizer()
        if self._local is not None:
            self._local.close()

    def __enter__(self) -> "Evaluator":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class EpisodeRunner:
    """What a process serves: an environment, and episodes of stored policies in it."""

    def __init__(self, make: EnvMaker, run: RunEpisode) -> None:
        self._env, self._run = make(), run

    def episode(self, parameters: Parameters, seed: Seed, deterministic: bool) -> Any:
        policy = policy_of(parameters, self._env.action_space)
        return self._run(self._env, policy, seed, deterministic)

    def close(self) -> None:
        self._env.close()


def environment_maker(screen: bool, frame_stack: int = 1) -> Callable[..., gymnasium.Env]:
    """What makes environments for agents that learned from a dataset: with observations as they
    come, or as a `Screen` shows them, several frames where there is more than one in a stack."""
    if not screen:
        return make_plain_env
    return make_env if frame_stack == 1 else partial(_make_stacked, frame_stack)


def default_workers(episodes: int) -> int:
    """One per core but one, which the learner has; no more than there are episodes."""
    return min(max(own_cores() - 1, 1), episodes)


def workers_for(jobs: int, steps: int) -> int:
    """Processes for jobs of so many steps in all, where this one only waits for them; none where
    there is little to do."""
    return 0 if steps < WORTH_PROCESSES else min(own_cores(), jobs)


def _make_stacked(frame_stack: int, name: str, /, **options: Any) -> gymnasium.Env:
    """A screen that shows its newest frames [K, H, W]; the first of an episode stands for those
    before it."""
    return FrameStackObservation(make_env(name, **options), frame_stack, padding_type="reset")


def _episode(idle: "queue.SimpleQueue[Worker]", episode: tuple[Parameters, Seed, bool]) -> Any:
    """In a thread: have a process run the episode, and wait for it."""
    worker = idle.get()
    try:
        worker.send("episode", *episode)
        return worker.receive()
    finally:
        idle.put(worker)


def _end(threads: ThreadPoolExecutor, workers: Sequence[Worker]) -> None:
    threads.shutdown(wait=False, cancel_futures=True)
    kill_workers(workers)  # the threads that wait for them read the end of their pipes
    threads.shutdown()
    for worker in workers:
        worker.hang_up()
