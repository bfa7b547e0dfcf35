"""P agents with E environments each, acting for a chunk of steps at a time with a host copy of
their policies.

Every dispatch to an accelerator and every barrier between processes costs as much as a step of an
environment. So nothing happens per step but the step: the agents act for a chunk of `chunk_steps`
steps, shared evenly by their environments, on a policy frozen for the chunk, in processes of their
own, while the accelerator makes its updates; the main process only starts and joins chunks.

    with ProcessCollector("Ant", [0, 1], 64, policy, parameter_shapes) as collector:
        for chunk_index in range(1000):
            collector.start(chunk_index, parameters)    # returns at once
            ...                                         # let the accelerator work on what is there
            chunk = collector.wait()

`Collector` is what a training loop needs of it, so that agents may act elsewhere;
`ProcessCollector` has them act on the host.

What is collected depends on the seeds, the chunk indices and the parameters, never on the number of
processes or their scheduling: an agent in a population does what it does alone. (One reservation:
with ``num_workers=0`` the policy runs on this process's BLAS threads, which may round a large
matrix product differently.) With ``parameters=None`` the agents act uniformly at random, which is
also how to measure the speed of the environments alone.
"""

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Float32, Int32, Int64, Integer

from element_rl.acting.actors import (
    RECORD_FIELDS,
    ActorGroup,
    CollectorError,
    Policy,
    Population,
    parameter_key,
)
from element_rl.acting.cores import usable_cores
from element_rl.acting.processes import (
    AnyWorker,
    LocalWorker,
    SharedArrays,
    Worker,
    WorkerFailure,
    stop_workers,
    that_answered,
)
from element_rl.envs.make import describe_spaces, env_maker
from element_rl.envs.spec import EnvSpec

MAX_WORKERS = 64


@dataclass(frozen=True)
class Chunk:
    """K steps of each of L = P E environments as records in time order, the first ``count[l]`` of
    each row; the rest is stale. Rows are environments, those of the first agent first.

    A record is an observation, the position there, the action taken there and what came of it. When
    an episode ends, one more record holds the true last observation and its position (``final``;
    all else zero); the next record begins the next episode. So every observation is stored once,
    and R = 2 K rows always suffice.

    The arrays are views of memory that the chunk after the next will overwrite: copy what is to be
    kept, and hand JAX copies too (on the CPU it may adopt NumPy memory without copying it). Those
    of worlds on the device are JAX's, but for what is counted on the host.
    """

    observation: Float32[Any, "L R O"]
    action: Float32[Any, "L R A"]  # on the policy's own scale, [-1, 1]
    extrinsic_reward: Float32[np.ndarray, "L R"]
    terminated: Bool[np.ndarray, "L R"]
    truncated: Bool[np.ndarray, "L R"]
    final: Bool[np.ndarray, "L R"]
    position: Float32[np.ndarray, "L R position"]
    count: Int32[np.ndarray, " L"]
    episode_index: Int64[np.ndarray, " L"]  # the episode that runs after this chunk, for `resume`


@runtime_checkable
class Collector(Protocol):
    """What collects the steps of a population of agents."""

    spec: EnvSpec
    on_device: bool  # whether it takes parameters there, and gives records there

    @property
    def first_end(self) -> int:
        """Steps of an agent after which one of its episodes is over for certain."""
        ...

    def start(
        self, chunk_index: int, parameters: Mapping[str, np.ndarray] | Literal["as set"] | None
    ) -> None:
        """Begin a chunk and return.

        ``parameters`` [P, ...] are copied; "as set": those that `set_parameters` was given last, or
        of the last chunk; None: uniform random actions in [-1, 1].
        """

    def set_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Copy parameters for the next chunk; allowed while a chunk is under way, which does not
        see them."""

    def wait(self) -> Chunk:
        """Block until the chunk under way is complete. A failure closes the collector and raises
        CollectorError."""

    def resume(
        self,
        episode_indices: Sequence[int] | Integer[np.ndarray, " L"],
        actions: Sequence[Float[np.ndarray, "_ A"]],
    ) -> Float32[np.ndarray, "L O"]:
        """Re-enact the episode that runs in each environment: reset it with its seed and take its
        recorded actions.

        ``actions[l]`` [t, A] are those recorded since the start of episode ``episode_indices[l]``,
        on the policy's scale. The next chunk continues exactly there. Returns the observations
        there.
        """

    def snapshot(self) -> Any:
        """A tree of arrays: where the environments are, for a checkpoint; None where their episodes
        are re-enacted instead."""

    def restore(self, snapshot: Any) -> None:
        """Go on from a snapshot."""

    def faults(self) -> Integer[np.ndarray, " P"] | None:
        """How often a world of each agent has failed and was reset; None where a failure ends the
        run."""

    def close(self) -> None:
        """End all acting. What `wait` returned stays readable. May be called again."""


class ProcessCollector:
    """A `Collector` in processes on the host; see the head of this module.

    ``env``: its name, or its description where that is known already. With a name it is described
    first. ``policy`` is a function of an importable module (it is sent to other processes);
    ``parameter_shapes`` are those of one agent. ``num_workers``: None for one process per agent, up
    to 64 (then agents share them), and per core where agents have several environments; 0 for none.
    ``seconds``: how long all processes together may be silent while one is waited for; None: for
    ever.
    """

    on_device = False

    def __init__(
        self,
        env: str | EnvSpec,
        agent_seeds: Sequence[int],
        chunk_steps: int,
        policy: Policy | None,
        parameter_shapes: Mapping[str, tuple[int, ...]],
        env_options: Mapping[str, Any] | None = None,
        num_workers: int | None = None,
        num_envs: int = 1,
        seconds: float | None = None,
    ) -> None:
        refuse_bad_sizes(agent_seeds, chunk_steps, num_workers, num_envs)
        options = dict(env_options or {})
        self.spec = env if isinstance(env, EnvSpec) else describe_spaces(env, "vectors", **options)
        self._population = Population(
            spec=self.spec,
            make_env=env_maker(self.spec.name, options),
            agent_seeds=tuple(int(seed) for seed in agent_seeds),
            chunk_steps=chunk_steps,
            policy=policy,
            parameter_shapes=dict(parameter_shapes),
            num_envs=num_envs,
        )
        rows = self._population.num_rows
        usual = min(MAX_WORKERS, max(len(agent_seeds), min(rows, usable_cores())))
        self.num_workers = min(rows, usual if num_workers is None else num_workers)
        self._workers, self._arrays = _started(self._population, self.num_workers)
        self._finalizer = weakref.finalize(self, stop_workers, list(self._workers))
        self._seconds = seconds
        # arguments of `act` of the chunk under way
        self._running: tuple[int, int, int | None] | None = None
        self._waiting: list[AnyWorker] = []  # that have not answered yet
        self._record_side = 0
        self._parameter_side = 0  # the side that the latest chunk acted on
        self._next_parameter_side = 0

    @property
    def first_end(self) -> int:
        return self.spec.max_episode_steps * self._population.num_envs

    def start(
        self, chunk_index: int, parameters: Mapping[str, np.ndarray] | Literal["as set"] | None
    ) -> None:
        self._refuse_if_unready()
        if parameters is None:
            side = None
        else:
            if parameters != "as set":
                self.set_parameters(parameters)
            side = self._parameter_side = self._next_parameter_side
        self._record_side = 1 - self._record_side
        self._running = (chunk_index, self._record_side, side)
        for worker in self._workers:
            self._send(worker, "act", *self._running)

    def set_parameters(self, parameters: Mapping[str, np.ndarray]) -> None:
        if self._population.policy is None:
            raise ValueError(
                "This collector was made without a policy; start its chunks with parameters=None."
            )
        shapes = self._population.parameter_shapes
        if parameters.keys() != shapes.keys():
            raise ValueError(
                f"The policy takes parameters {sorted(shapes)}, but got {sorted(parameters)}."
            )
        for name, shape in shapes.items():
            expected, given = (
                (len(self._population.agent_seeds), *shape),
                np.shape(parameters[name]),
            )
            if given != expected:
                raise ValueError(
                    f"Parameter {name!r} must have the shape {expected}, agents first, not {given}."
                )
        self._next_parameter_side = 1 - self._parameter_side
        for name in shapes:
            self._arrays[parameter_key(name)][self._next_parameter_side] = parameters[name]

    def wait(self) -> Chunk:
        if self._running is None:
            raise RuntimeError("No chunk is under way; call start first.")
        chunk_index, side, _ = self._running
        self._answers(f"in chunk {chunk_index}")
        self._running = None
        fields = (*RECORD_FIELDS, "count", "episode_index")
        return Chunk(**{field: self._arrays[field][side] for field in fields})

    def resume(
        self,
        episode_indices: Sequence[int] | Integer[np.ndarray, " L"],
        actions: Sequence[Float[np.ndarray, "_ A"]],
    ) -> Float32[np.ndarray, "L O"]:
        self._refuse_if_unready()
        if not len(episode_indices) == len(actions) == self._population.num_rows:
            raise ValueError(
                f"There are {self._population.num_rows} environments to resume, but "
                f"{len(episode_indices)} episode indices and {len(actions)} lists of actions."
            )
        episodes = [
            (int(index), np.asarray(taken))
            for index, taken in zip(episode_indices, actions, strict=True)
        ]
        for worker, rows in self._workers.items():
            self._send(worker, "reenact", {row: episodes[row] for row in rows})
        observations: dict[int, np.ndarray] = {}
        for share in self._answers("while its episode was re-enacted"):
            observations |= share
        return np.stack([observations[row] for row in range(len(episodes))])

    def snapshot(self) -> None:
        return None

    def restore(self, snapshot: Any) -> None:
        raise RuntimeError("Environments in processes are re-enacted, not restored.")

    def faults(self) -> None:
        return None

    def close(self) -> None:
        self._running = None
        self._finalizer()

    def __enter__(self) -> "ProcessCollector":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, worker: AnyWorker, command: str, *arguments: Any) -> None:
        worker.send(command, *arguments)
        self._waiting.append(worker)

    def _answers(self, when: str) -> list[Any]:
        """The answers of all workers, in any order, so that the first failure is known at once."""
        answers = []
        while self._waiting:
            if not (answered := that_answered(self._waiting, self._seconds)):
                message = self._hanging(when)
                self.close()
                raise CollectorError(message)
            for worker in answered:
                try:
                    answers.append(worker.receive())
                except WorkerFailure as failure:
                    message = self._message(self._workers[worker], failure, when)
                    self.close()
                    raise CollectorError(message) from failure
                self._waiting.remove(worker)  # only now: an interrupted wait may be taken up again
        return answers

    def _hanging(self, when: str) -> str:
        """Of the first process that is waited for in vain."""
        worker = self._waiting[0]
        process = f"process {worker.pid}" if isinstance(worker, Worker) else "this process"
        return (
            f"The environment {self.spec.name} of {self._whose(self._workers[worker])} did not "
            f"answer for {self._seconds:g} s {when} ({process}; --env-timeout)."
        )

    def _whose(self, rows: Sequence[int]) -> str:
        agents = sorted({row // self._population.num_envs for row in rows})
        first, last = agents[0], agents[-1]
        return f"agent {first}" if first == last else f"agents {first} to {last}"

    def _message(self, rows: Sequence[int], failure: WorkerFailure, when: str) -> str:
        whose = self._whose(rows)
        if failure.when == "call":
            return str(failure)
        if failure.when == "start":
            return f"The worker process of {whose} could not start: {failure}"
        return f"The worker process of {whose} died {when} ({failure})."

    def _refuse_if_unready(self) -> None:
        if not self._finalizer.alive:
            raise RuntimeError("This collector is closed.")
        if self._running is not None or self._waiting:
            raise RuntimeError("A chunk is under way; call wait first.")


def _started(
    population: Population, num_workers: int
) -> tuple[dict[AnyWorker, list[int]], dict[str, np.ndarray]]:
    """The population shared among processes: each with the environments that it has, and the arrays
    that they share with this one."""
    kind, shared = Worker if num_workers else LocalWorker, SharedArrays(population.array_layout())
    workers: dict[AnyWorker, list[int]] = {}
    try:
        for share in np.array_split(np.arange(population.num_rows), max(num_workers, 1)):
            rows = share.tolist()
            workers[kind(f"actors-{rows[0]}", ActorGroup, (population, rows), shared)] = rows
    except BaseException:
        stop_workers(list(workers))
        raise
    return workers, shared.views()


def refuse_bad_sizes(
    agent_seeds: Sequence[int], chunk_steps: int, num_workers: int | None, num_envs: int
) -> None:
    if len(agent_seeds) == 0 or min(agent_seeds) < 0:
        raise ValueError(
            f"agent_seeds must be one or more whole numbers of at least 0, not {list(agent_seeds)}."
        )
    if chunk_steps < 1:
        raise ValueError(f"chunk_steps must be at least 1, not {chunk_steps}.")
    if num_envs < 1 or chunk_steps % num_envs:
        raise ValueError(
            f"num_envs must be at least 1 and divide chunk_steps, not {num_envs} environments and "
            f"{chunk_steps} steps."
        )
    if num_workers is not None and num_workers < 0:
        raise ValueError(f"num_workers must be None, 0 or positive, not {num_workers}.")
