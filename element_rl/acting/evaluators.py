"""Returns of many policies in an environment, episode by episode in processes of their own, while
the device learns.

    with Evaluator("Hopper-v5", {}, num_workers=8) as evaluator:
        evaluator.start(parameters, seeds)      # returns at once
        ...                                     # let the device work
        returns, lengths = evaluator.wait()     # or `results()`: all that its `run` has to say of each episode

Policies are deterministic unless told otherwise: the mean of a squashed Gaussian, or the action of
the highest value. An episode depends on its policy and its seed, and on nothing else: neither on
the number of processes nor on which of them runs it. It is the episode of `episodes.run_episode`
with the same seed. Nothing here imports JAX.
"""

import gc
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import FrameStackObservation
from jaxtyping import Float64, Int64

from element_rl.acting.cores import own_cores
from element_rl.acting.host_policy import policy_action
from element_rl.acting.host_values import action_values
from element_rl.acting.workers import NICENESS, worker_surroundings
from element_rl.envs.robots import make_env
from element_rl.envs.screens import make_screen

WORTH_PROCESSES = 20_000  # steps; with fewer, starting processes takes about as long as acting here

Parameters = Mapping[str, np.ndarray]
Seed = tuple[int, int, int]  # of the agent, the update, the episode
# the last argument: deterministic
RunEpisode = Callable[[gymnasium.Env, Parameters, Seed, bool], Any]


def episode_return(
    env: gymnasium.Env, parameters: Parameters, seed: Seed, deterministic: bool = True
) -> tuple[float, int]:
    """Return and length of one episode."""
    generator = np.random.default_rng(list(seed))
    observation, _ = env.reset(seed=int(generator.integers(2**31)))
    total, length, done = 0.0, 0, False
    while not done:
        action = _action(
            env.action_space, parameters, observation, None if deterministic else generator
        )
        observation, reward, terminated, truncated, _ = env.step(action)
        total, length, done = total + float(reward), length + 1, terminated or truncated
    return total, length


class Evaluator:
    """Worker processes for episodes; `num_workers` 0: none, episodes are run by `wait`."""

    def __init__(
        self,
        env: str,
        env_options: Mapping[str, Any],
        num_workers: int,
        make: Callable[..., gymnasium.Env] = make_env,
        run: RunEpisode = episode_return,
    ) -> None:
        """`make` the environment, and `run` an episode in it; both are functions of modules that
        load no JAX."""
        self._run = run
        self._pool: ProcessPoolExecutor | None = None
        self._env: gymnasium.Env | None = None
        self._waiting: list[tuple[Parameters, Seed, bool]] = []
        self._futures: list[Future[Any]] = []
        self._shape = (0, 0)
        if num_workers == 0:
            self._env = make(env, **env_options)
            return
        # imports the module of "module:Env-v0", and refuses what cannot be made
        made = make(env, **env_options)
        assert made.spec is not None
        registration = gymnasium.spec(made.spec.id)
        made.close()
        self._pool = ProcessPoolExecutor(
            num_workers,
            mp_context=get_context("spawn"),
            initializer=_prepare,
            initargs=(registration, dict(env_options), make),
        )

    def start(
        self, parameters: Parameters, seeds: Sequence[Sequence[Seed]], deterministic: bool = True
    ) -> None:
        """Begin an episode per agent and seed; `parameters` [P, ...] are copied."""
        self._shape = (len(seeds), len(seeds[0]))
        for agent, own_seeds in enumerate(seeds):
            own = {name: np.array(array[agent]) for name, array in parameters.items()}
            self._waiting += [(own, seed, deterministic) for seed in own_seeds]
        if self._pool is not None:
            with worker_surroundings():  # processes are born here, when there are episodes for them
                self._futures = [
                    self._pool.submit(_episode, self._run, *episode) for episode in self._waiting
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
        except BrokenProcessPool as error:
            raise ValueError(
                "A process that evaluates died, perhaps for want of memory: try again with fewer "
                "--workers."
            ) from error
        if self._env is not None:
            results = [self._run(self._env, *episode) for episode in self._waiting]
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
        if self._pool is not None:
            processes = list((self._pool._processes or {}).values())
            self._pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.kill()
        if self._env is not None:
            self._env.close()

    def __enter__(self) -> "Evaluator":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def environment_maker(screen: bool, frame_stack: int = 1) -> Callable[..., gymnasium.Env]:
    """`make_env`; for screens `make_screen`, with observations of several frames where there is
    more than one in a stack."""
    if not screen:
        return make_env
    return make_screen if frame_stack == 1 else partial(_make_stacked, frame_stack)


def _make_stacked(frame_stack: int, name: str, **options: Any) -> gymnasium.Env:
    """A screen that shows its newest frames [K, H, W]; the first of an episode stands for those
    before it."""
    return FrameStackObservation(make_screen(name, **options), frame_stack, padding_type="reset")


def default_workers(episodes: int) -> int:
    """One per core but one, which the learner has; no more than there are episodes."""
    return min(max(own_cores() - 1, 1), episodes)


def workers_for(jobs: int, steps: int) -> int:
    """Processes for jobs of so many steps in all, where this one only waits for them; none where
    there is little to do."""
    return 0 if steps < WORTH_PROCESSES else min(own_cores(), jobs)


_own_env: list[gymnasium.Env] = []  # of a worker process


def _prepare(
    registration: gymnasium.envs.registration.EnvSpec,
    env_options: dict[str, Any],
    make: Callable[..., gymnasium.Env],
) -> None:
    """In a worker process, once: its environment, and an end when the main process has gone,
    however it went."""
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # the main process decides: its checkpoint needs these episodes
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    gymnasium.registry.setdefault(registration.id, registration)
    _own_env.append(make(registration.id, **env_options))
    gc.freeze()


def _leave_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _episode(run: RunEpisode, parameters: Parameters, seed: Seed, deterministic: bool) -> Any:
    return run(_own_env[0], parameters, seed, deterministic)


def _action(
    space: gymnasium.Space,
    parameters: Parameters,
    observation: Any,
    generator: np.random.Generator | None,
) -> Any:
    """The action at an observation, sampled if there is a generator (choices are never)."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return int(space.start) + int(np.argmax(action_values(parameters, np.asarray(observation))))
    assert isinstance(space, gymnasium.spaces.Box)
    noise = np.zeros(space.shape, np.float32)
    if generator is not None:
        noise = generator.standard_normal(space.shape, dtype=np.float32)
    action = policy_action(parameters, np.asarray(observation, np.float32), noise)
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    return low + (action + 1) / 2 * (high - low)
