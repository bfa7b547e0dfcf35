"""P agents with E worlds each, acting for a chunk of steps on the device.

A `Collector` (see `acting.collector`) whose environments are worlds of the device: one compiled
program acts, steps, cuts episodes off and resets, S = chunk_steps / E times in a `lax.scan`.
Nothing happens on the host per step. Observations and actions of a chunk stay on the device; the
host is handed what it counts (rewards, ends of episodes, positions).

    noise of chunk c                  normal(fold_in(key, c), [S, E, A])
    reset of episode n in world e     fold_in(fold_in(fold_in(key, RESETS), e), n)

where key = fold_in(key(agent's seed), ACTING). So no random state is kept, and an agent in a
population does what it does alone. A checkpoint holds the worlds as they are: nothing has to be
re-enacted.

**Staggered first episodes.** E worlds that begin together would end together: the first episode of
an agent would be over after E · T steps (T the time limit), and then E episodes would be observed
at once. So the first episode of world e is cut off after T (e + 1) / E steps. From step T of the
agent on, an episode ends every T steps of the agent, as with one environment.

**Resets.** A fresh state of every world is made once for a chunk. Only where a world ends two
episodes within one chunk they are made again.

**Faulty worlds** are cut off where they were last sound and reset: the transition leads back to
where it began, pays 0, and is truncated, not terminated. They are counted (`faults`).
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float32, Int, Integer, Key, PRNGKeyArray, UInt

from element_rl.acting.actors import CollectorError
from element_rl.acting.collector import Chunk, refuse_bad_sizes
from element_rl.agents.stored_policy import policy_actions
from element_rl.envs.spec import EnvSpec
from element_rl.worlds.contract import Seen, Worlds

Seeds = UInt[Array, " P"]
ACTING = 3  # streams of an agent's key; the learner has 1 and 2
RESETS = 1
# what the host looks at
_COUNTED = (
    *("extrinsic_reward", "terminated", "truncated", "final", "position"),
    *("count", "episode_index"),
)


class Stream(NamedTuple):
    """Where L = P E worlds are: everything that the next chunk depends on."""

    worlds: Any  # as `Worlds` has it
    seen: Seen
    steps: Int[Array, " L"]  # of the running episode
    limit: Int[Array, " L"]  # steps after which it is cut off
    episode: Int[Array, " L"]  # its number
    faults: Int[Array, " L"]  # times that the physics has failed so far


class Taken(NamedTuple):
    """One step of all worlds."""

    before: Seen
    action: Float[Array, "L A"]
    reward: Float[Array, " L"]
    terminated: Bool[Array, " L"]
    truncated: Bool[Array, " L"]
    after: Seen  # where the step led, before any reset


class Fresh(NamedTuple):
    """Worlds at the beginning of the episode after the running one."""

    worlds: Any
    seen: Seen
    episode: Int[Array, " L"]


class DeviceCollector:
    """A `Collector` on the device; see the head of this module."""

    on_device = True

    def __init__(
        self,
        worlds: Worlds,
        agent_seeds: Sequence[int],
        chunk_steps: int,
        num_envs: int = 1,
        first_agent: int = 0,  # number of the first, in sentences
    ) -> None:
        refuse_bad_sizes(agent_seeds, chunk_steps, None, num_envs)
        self.spec: EnvSpec = worlds.spec
        self._num_envs, self._first_agent = num_envs, first_agent
        self._seeds = np.asarray(agent_seeds, np.uint32)
        sizes = (num_envs, chunk_steps // num_envs)
        self._begin = jax.jit(partial(begin, worlds, num_envs))
        self._collect = jax.jit(partial(collect, worlds, *sizes), donate_argnums=0)
        self._stream: Stream | None = None
        self._parameters: Mapping[str, Any] | None = None
        self._running: tuple[int, Any] | None = None

    @property
    def first_end(self) -> int:
        """Steps of an agent after which one of its episodes is over for certain."""
        return self._num_envs * -(-self.spec.max_episode_steps // self._num_envs)

    def start(
        self, chunk_index: int, parameters: Mapping[str, Any] | Literal["as set"] | None
    ) -> None:
        if self._running is not None:
            raise RuntimeError("A chunk is under way; call wait first.")
        if parameters == "as set":
            parameters = self._parameters
            if parameters is None:
                raise RuntimeError("No parameters were set.")
        elif parameters is not None:
            self._parameters = parameters
        if self._stream is None:
            self._stream = self._begin(self._seeds)
        self._stream, chunk = self._collect(
            self._stream, self._seeds, np.int32(chunk_index), parameters
        )
        self._running = chunk_index, chunk

    def set_parameters(self, parameters: Mapping[str, Any]) -> None:
        self._parameters = parameters

    def wait(self) -> Chunk:
        if self._running is None:
            raise RuntimeError("No chunk is under way; call start first.")
        (chunk_index, records), self._running = self._running, None
        diverged = np.flatnonzero(~jax.device_get(records.pop("sound_actions")))
        if len(diverged):
            agent = self._first_agent + diverged[0]
            raise CollectorError(
                f"Agent {agent} failed in chunk {chunk_index}: an action is not finite; it came "
                "from its policy, whose parameters have diverged."
            )
        records |= jax.device_get({name: records[name] for name in _COUNTED})
        records["episode_index"] = records["episode_index"].astype(np.int64)
        return Chunk(**records)

    def resume(
        self,
        episode_indices: Sequence[int] | Integer[np.ndarray, " L"],
        actions: Sequence[Float[np.ndarray, "_ A"]],
    ) -> Float32[np.ndarray, "L O"]:
        raise RuntimeError("Worlds on the device are restored, not re-enacted.")

    def snapshot(self) -> Any:
        """Where the worlds are, for a checkpoint."""
        return self._stream if self._stream is not None else self._begin(self._seeds)

    def restore(self, stream: Any) -> None:
        """Go on from a snapshot."""
        self._stream = jax.tree.map(jnp.asarray, stream)

    def faults(self) -> Int[np.ndarray, " P"]:
        """How often the physics of each agent's worlds has failed."""
        if self._stream is None:
            return np.zeros(len(self._seeds), np.int64)
        per_world = np.asarray(self._stream.faults, np.int64)
        return per_world.reshape(len(self._seeds), self._num_envs).sum(axis=1)

    def close(self) -> None:
        self._running = self._stream = None


def begin(worlds: Worlds, num_envs: int, seeds: Seeds) -> Stream:
    """Every world in its first episode; the limits of those are staggered."""
    rows = seeds.shape[0] * num_envs
    zeros = jnp.zeros(rows, jnp.int32)
    state, seen = worlds.reset(reset_keys(seeds, num_envs, zeros))
    env = jnp.arange(rows, dtype=jnp.int32) % num_envs
    limit = -(-(env + 1) * worlds.spec.max_episode_steps // num_envs)
    return Stream(state, seen, zeros, limit, zeros, zeros)


def collect(
    worlds: Worlds,
    num_envs: int,
    num_steps: int,
    stream: Stream,
    seeds: Seeds,
    chunk_index: Int[Array, ""],
    parameters: Mapping[str, Array] | None,
) -> tuple[Stream, dict[str, Array]]:
    """`num_steps` steps of every world from where the stream is, and their records."""
    spec, agents = worlds.spec, seeds.shape[0]
    noise = _noise(seeds, chunk_index, (num_steps, num_envs, spec.action_dim), parameters is None)
    low, high = (jnp.asarray(bound, jnp.float32) for bound in (spec.action_low, spec.action_high))

    def fresh_worlds(episode: Int[Array, " L"]) -> Fresh:
        return Fresh(*worlds.reset(reset_keys(seeds, num_envs, episode)), episode)

    def step(carry: tuple[Stream, Fresh], noise: Float[Array, "P E A"]) -> Any:
        stream, fresh = carry
        action = noise
        if parameters is not None:
            seen = jax.tree.map(
                lambda leaf: leaf.reshape(agents, num_envs, leaf.shape[1]), stream.seen
            )
            action = jax.vmap(policy_actions)(parameters, seen.observation, seen.position, noise)
        action = action.reshape(agents * num_envs, -1)
        centre, half = jnp.broadcast_to((low + high) / 2, action.shape), (high - low) / 2
        state, outcome = worlds.step(stream.worlds, action * half[None, :] + centre)
        faulty = outcome.faulty
        after = _chosen(faulty, stream.seen, outcome.seen)
        terminated = outcome.terminated & ~faulty
        truncated = (faulty | (stream.steps + 1 >= stream.limit)) & ~terminated
        taken = Taken(
            stream.seen,
            action,
            jnp.where(faulty, 0.0, outcome.reward),
            terminated,
            truncated,
            after,
        )
        done = terminated | truncated
        upcoming = stream.episode + 1
        fresh = jax.lax.cond(
            jnp.any(done & (fresh.episode != upcoming)),
            lambda: fresh_worlds(upcoming),
            lambda: fresh,
        )
        stream = Stream(
            _chosen(done, fresh.worlds, state),
            _chosen(done, fresh.seen, after),
            jnp.where(done, 0, stream.steps + 1),
            jnp.where(done, spec.max_episode_steps, stream.limit),
            jnp.where(done, upcoming, stream.episode),
            stream.faults + faulty,
        )
        return (stream, fresh), taken

    (stream, _), taken = jax.lax.scan(step, (stream, fresh_worlds(stream.episode + 1)), noise)
    sound = jnp.isfinite(taken.action).reshape(num_steps, agents, -1).all(axis=(0, 2))
    return stream, records(taken) | {"episode_index": stream.episode, "sound_actions": sound}


def records(taken: Taken) -> dict[str, Array]:
    """Steps [S, L, ...] as the records [L, 2 S, ...] of a `Chunk`: after the step that ends an
    episode there is one more, `final`, with the observation that it led to."""
    done = (taken.terminated | taken.truncated).swapaxes(0, 1)  # [L, S]
    num_worlds, num_steps = done.shape
    ended = jnp.cumsum(done, axis=1, dtype=jnp.int32)
    number = jnp.arange(num_steps, dtype=jnp.int32)[None, :]
    row = number + ended - done  # the step t stands after t others and the final ones before it
    final_row = jnp.where(done, row + 1, 2 * num_steps)  # outside: dropped
    world = jnp.arange(num_worlds, dtype=jnp.int32)[:, None]

    def placed(steps: Array, final: Array | None = None) -> Array:
        values = jnp.swapaxes(steps, 0, 1)
        empty = jnp.zeros((num_worlds, 2 * num_steps, *values.shape[2:]), values.dtype)
        filled = empty.at[world, row].set(values)
        if final is None:
            return filled
        return filled.at[world, final_row].set(jnp.swapaxes(final, 0, 1), mode="drop")

    none = jnp.zeros((num_worlds, 2 * num_steps), bool)
    return {
        "observation": placed(taken.before.observation, taken.after.observation),
        "position": placed(taken.before.position, taken.after.position),
        "action": placed(taken.action),
        "extrinsic_reward": placed(taken.reward),
        "terminated": placed(taken.terminated),
        "truncated": placed(taken.truncated),
        "final": none.at[world, final_row].set(values=True, mode="drop"),
        "count": num_steps + ended[:, -1],
    }


def reset_keys(seeds: Seeds, num_envs: int, episode: Int[Array, " L"]) -> Key[Array, " L"]:
    """The key of an episode in each world."""

    def of_world(row: Int[Array, ""], number: Int[Array, ""]) -> PRNGKeyArray:
        key = jax.random.fold_in(_acting_key(seeds[row // num_envs]), RESETS)
        return jax.random.fold_in(jax.random.fold_in(key, row % num_envs), number)

    return jax.vmap(of_world)(jnp.arange(len(episode), dtype=jnp.int32), episode)


def _acting_key(seed: UInt[Array, ""]) -> PRNGKeyArray:
    return jax.random.fold_in(jax.random.key(seed), ACTING)


def _noise(
    seeds: Seeds,
    chunk_index: Int[Array, ""],
    shape: tuple[int, int, int],
    uniform: bool,
) -> Float[Array, "S P E A"]:
    """What the actions of a chunk are drawn with: standard normal, or uniform in [-1, 1]."""

    def of_agent(seed: UInt[Array, ""]) -> Array:
        key = jax.random.fold_in(jax.random.fold_in(_acting_key(seed), 0), chunk_index)
        if uniform:
            return jax.random.uniform(key, shape, minval=-1.0, maxval=1.0)
        return jax.random.normal(key, shape)

    return jnp.swapaxes(jax.vmap(of_agent)(seeds), 0, 1)


def _chosen(where: Bool[Array, " L"], new: Any, old: Any) -> Any:
    """The new leaf of each world for which it is true, else the old one."""

    def choose(one: Array, other: Array) -> Array:
        return jnp.where(where.reshape(-1, *(1,) * (one.ndim - 1)), one, other)

    return jax.tree.map(choose, new, old)
