"""Agents acting in their own environments for a chunk of steps, with a policy frozen for the chunk.

An agent may have E environments. Arrays have a row for each, those of the first agent first: p E +
e.

This is the code that runs in the worker processes (or in the main one, with the same results).
Everything random is derived from the agent's seed and a counter, so no random state has to be kept
or restored:

    action noise of chunk c       default_rng([seed, c])
    seed of the n-th episode      SeedSequence([seed, 1_000_003, n])

and for environment e > 0 of an agent the same with e appended.

An environment is reset with a seed at every episode, so an episode depends on nothing that came
before it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from element_rl.acting.episode import RunningEpisode
from element_rl.acting.host_policy import is_told, random_choice, with_place
from element_rl.acting.processes import Layout, sentence
from element_rl.envs.make import EnvMaker
from element_rl.envs.spec import EnvSpec

Policy = Callable[[Mapping[str, np.ndarray], np.ndarray, np.ndarray], np.ndarray]
"""``policy(parameters, observation [O], standard normal noise [A]) -> action [A] in [-1, 1]``; the
observation of a policy that is told its place is that `with_place`. Where actions are a choice, the
noise is two uniforms (whether to draw the action, and which) and the action a one-hot vector."""

EPISODE_STREAM = 1_000_003


class CollectorError(ValueError):
    """An agent, its environment or its worker process failed; the message names it."""


@dataclass(frozen=True)
class Population:
    """What every worker has to know of all agents."""

    spec: EnvSpec
    make_env: EnvMaker
    agent_seeds: tuple[int, ...]
    chunk_steps: int
    policy: Policy | None
    parameter_shapes: Mapping[str, tuple[int, ...]]
    num_envs: int = 1  # of each agent

    @property
    def num_rows(self) -> int:
        """Environments of all agents."""
        return len(self.agent_seeds) * self.num_envs

    @property
    def env_steps(self) -> int:
        """Steps of one environment in a chunk."""
        return self.chunk_steps // self.num_envs

    @property
    def max_records(self) -> int:
        """Records of an environment in a chunk at most: one for each step, and one more if it ended
        an episode."""
        return 2 * self.env_steps

    def array_layout(self) -> Layout:
        """Shape and type of every array the processes share. All are double: axis 0 is the side of
        the buffer."""
        agents, environments = (2, len(self.agent_seeds)), (2, self.num_rows)
        records = (*environments, self.max_records)
        layout: dict[str, tuple[tuple[int, ...], type]] = {
            "observation": ((*records, self.spec.observation_dim), np.float32),
            "action": ((*records, self.spec.action_dim), np.float32),
            "extrinsic_reward": (records, np.float32),
            "terminated": (records, np.bool_),
            "truncated": (records, np.bool_),
            "final": (records, np.bool_),
            "position": ((*records, self.spec.position_dim), np.float32),
            "count": (environments, np.int32),
            "episode_index": (environments, np.int64),
        }
        for name, shape in self.parameter_shapes.items():
            layout[parameter_key(name)] = ((*agents, *shape), np.float32)
        return layout


def parameter_key(name: str) -> str:
    return f"parameter/{name}"


RECORD_FIELDS = (
    "observation",
    "action",
    "extrinsic_reward",
    "terminated",
    "truncated",
    "final",
    "position",
)


class ActorGroup:
    """The environments of one worker, one after the other."""

    def __init__(
        self, population: Population, rows: Sequence[int], arrays: Mapping[str, np.ndarray]
    ) -> None:
        self.actors = {row: Actor(population, row) for row in rows}
        self._population, self._arrays = population, arrays
        # Views made once: a step should find its arrays, not make them.
        self._records = [
            {row: {field: arrays[field][side, row] for field in RECORD_FIELDS} for row in rows}
            for side in (0, 1)
        ]
        self._parameters = [
            {
                agent: {
                    # with the dots a single number is a view too, which later chunks change
                    name: arrays[parameter_key(name)][side, agent, ...]
                    for name in population.parameter_shapes
                }
                for agent in sorted({row // population.num_envs for row in rows})
            }
            for side in (0, 1)
        ]

    def act(self, chunk_index: int, record_side: int, parameter_side: int | None) -> None:
        """Fill one side of the records with a chunk, acting on one side of the parameters, or at
        random on None."""
        for row, actor in self.actors.items():
            agent = row // self._population.num_envs
            parameters = None if parameter_side is None else self._parameters[parameter_side][agent]
            try:
                count = actor.act(chunk_index, self._records[record_side][row], parameters)
            except Exception as error:
                raise CollectorError(
                    f"{actor.name} failed in chunk {chunk_index}: {sentence(error)}"
                ) from error
            self._arrays["count"][record_side, row] = count
            self._arrays["episode_index"][record_side, row] = actor.episode_index

    def reenact(self, episodes: Mapping[int, tuple[int, np.ndarray]]) -> dict[int, np.ndarray]:
        """Bring each environment to where its episode (index, actions so far) had come; its
        observation there."""
        observations = {}
        for row, (episode_index, actions) in episodes.items():
            try:
                observations[row] = self.actors[row].reenact(episode_index, actions)
            except Exception as error:
                name = self.actors[row].name
                raise CollectorError(f"{name} could not be resumed: {sentence(error)}") from error
        return observations

    def close(self) -> None:
        for actor in self.actors.values():
            actor.episode.env.close()


class Actor:
    """One agent in one of its environments. Its running episode outlives the chunks."""

    def __init__(self, population: Population, row: int) -> None:
        agent, self.index = divmod(row, population.num_envs)
        self.name = f"Agent {agent}" + (
            f", environment {self.index}," if population.num_envs > 1 else ""
        )
        self.spec = population.spec
        self.episode = RunningEpisode(self.spec, population.make_env())
        self.policy = population.policy
        self.chunk_steps = population.env_steps
        self.seed = population.agent_seeds[agent]
        self.episode_index = -1

    def act(
        self,
        chunk_index: int,
        records: Mapping[str, np.ndarray],
        parameters: Mapping[str, np.ndarray] | None,
    ) -> int:
        """Take ``chunk_steps`` steps from where the last chunk ended; the number of records
        written."""
        if self.episode_index < 0:
            self._begin_episode(0)
        episode = self.episode
        first_episode, first_step = self.episode_index, episode.steps
        observations, actions, rewards, terminations, truncations, final, positions = (
            records[field] for field in RECORD_FIELDS
        )
        for array in (actions, rewards, terminations, truncations, final):
            array[:] = 0
        policy = self.policy
        told = parameters is not None and is_told(parameters)
        chooses = self.spec.chooses
        count = 0
        try:
            for noise in self._noise(chunk_index, uniform=parameters is None):
                observations[count], positions[count] = episode.observation, episode.position
                if parameters is None or policy is None:
                    action = random_choice(noise, self.spec.actions) if chooses else noise
                else:
                    seen = observations[count]
                    if told:
                        seen = with_place(parameters, seen, positions[count])
                    action = policy(parameters, seen, noise)
                actions[count] = action
                rewards[count], terminated, truncated = episode.step(action)
                count += 1
                if terminated or truncated:
                    terminations[count - 1], truncations[count - 1] = terminated, truncated
                    observations[count], positions[count] = episode.observation, episode.position
                    final[count] = True
                    count += 1
                    self._begin_episode(self.episode_index + 1)
        except Exception:
            # Perhaps it choked on what the environment or the policy gave before, which is then the
            # thing to report.
            self._refuse_non_finite(records, count + 1, first_episode, first_step)
            raise
        self._refuse_non_finite(records, count, first_episode, first_step)
        return count

    def reenact(
        self, episode_index: int, actions: Float[np.ndarray, "T A"]
    ) -> Float[np.ndarray, " O"]:
        """Reset to an episode and take the actions it had seen; its observation then."""
        self.episode_index = episode_index
        self.episode.live_again(episode_index, self._episode_seed(), actions)
        return self.episode.observation.astype(np.float32)

    def _begin_episode(self, episode_index: int) -> None:
        self.episode_index = episode_index
        self.episode.begin(self._episode_seed())

    def _episode_seed(self) -> int:
        return episode_seed(self.seed, self.episode_index, self.index)

    def _noise(self, chunk_index: int, uniform: bool) -> Float[np.ndarray, "T noise"]:
        generator = np.random.default_rng([self.seed, chunk_index, *_suffix(self.index)])
        if self.spec.chooses:
            return generator.random((self.chunk_steps, 2), dtype=np.float32)
        shape = (self.chunk_steps, self.spec.action_dim)
        if uniform:
            return generator.uniform(-1.0, 1.0, shape).astype(np.float32)
        return generator.standard_normal(shape, dtype=np.float32)

    def _refuse_non_finite(
        self, records: Mapping[str, np.ndarray], count: int, first_episode: int, first_step: int
    ) -> None:
        """One pass at the end of a chunk costs nothing beside a test at every step."""
        first_bad: tuple[int, str] | None = None
        for field in ("observation", "position", "action", "extrinsic_reward"):
            finite = np.isfinite(records[field][:count])
            if finite.all():
                continue
            record = int(np.argmin(finite.reshape(len(finite), -1).all(axis=1)))
            if first_bad is None or record < first_bad[0]:
                first_bad = (record, field)
        if first_bad is None:
            return
        record, field = first_bad
        ends = np.flatnonzero(records["final"][:record])
        episode = first_episode + len(ends)
        step = record - ends[-1] - 1 if len(ends) else first_step + record
        source = (
            "its policy, whose parameters have diverged" if field == "action" else self.spec.name
        )
        raise ValueError(
            f"{field} is {np.array2string(records[field][record], threshold=8)} at step {step} of "
            f"episode {episode}; it came from {source}"
        )


def episode_seed(agent_seed: int, episode_index: int, env: int = 0) -> int:
    """What an environment of an agent is reset with for an episode."""
    entropy = [agent_seed, EPISODE_STREAM, episode_index, *_suffix(env)]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])


def _suffix(env: int) -> tuple[int, ...]:
    """What tells the random streams of an agent's environments apart; nothing for its first."""
    return (env,) if env else ()
