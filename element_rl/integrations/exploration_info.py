"""Gymnasium wrappers that report how an agent explores, whatever it learns from. The task's reward
is left alone.

    env = ExplorationInfo(gymnasium.make("Ant-v5"))
    envs = VectorExplorationInfo(gymnasium.make_vec("Ant-v5", num_envs=8))

    info["novelty"]           every step: log(1 + ‖distances to the k nearest states of earlier
                              episodes‖), Eq. 15; 0 while no episode has ended
    info["coverage"]          every step: cells of position space visited since the wrapper was
                              made; without a position, of what the environment shows
    info["episode_entropy"]   at the end of an episode: its matrix-based Rényi entropy in bits, as
                              `element evaluate` has it

States are those of `element_rl.integrations`: a random embedding of the observation, the position
and the orientation of robots that the library knows, or the result of one's own function. They are
counted after every step, not at the reset. Where the position is given, these are its cells:

    with bounds    `cells` along each axis; what lies outside is counted in the cells of the border
    without        cells of side 1, without any border

Bounds are those given, or a robot's, or those of the observation's columns if they are finite. In
an environment that is registered with Gymnasium, and whose position is neither known nor given,
cells are those that `element explore` counts there (`places`); states are as without.

Several environments of a `VectorExplorationInfo` share one memory and one map; wrapped one by one,
each has its own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode
from jaxtyping import Array, Bool, Float, Int

from element_rl.entropy import renyi_entropy
from element_rl.envs.make import describe
from element_rl.envs.positions import Pairs, checked_bounds, column_bounds
from element_rl.envs.robots import robot_of
from element_rl.envs.spec import EnvSpec
from element_rl.integrations.observations import (
    Encoding,
    Infos,
    StateFunction,
    StateSource,
    each_part,
    stacked,
)
from element_rl.integrations.places import found_places
from element_rl.memory import Memory, make_memory
from element_rl.rewards.on_rollouts import padded_length


class ExplorationInfo(gymnasium.Wrapper, RecordConstructorArgs):
    """Reports novelty, coverage and episode entropy in `info`."""

    def __init__(
        self,
        env: gymnasium.Env,
        position: Sequence[str] | Sequence[int] | None = None,
        states: StateFunction | None = None,
        bounds: Pairs | None = None,
        cells: int = 100,
        num_neighbours: int = 3,
        memory: str = "auto",
        entropy_order: int | float = 1.001,
        bandwidth: int | float = 1.0,
        seed: int = 0,
        max_episode_steps: int = 1000,
    ) -> None:
        """
        position: entries of `info`, or columns of the observation, that say where the agent is.
        states: a function of observations [B, ...] and infos that returns states [B, D]; position
        is then for coverage alone. bounds, cells: of the map on which coverage is counted; see
        above for what stands in for bounds. num_neighbours, memory: k of Eq. 15, and the kind of
        memory: auto, exact, graph, hnsw or spaced (`element_rl.memory`). entropy_order, bandwidth:
        of the episode's entropy; an integer order is far cheaper than the paper's 1.001. seed: of
        the random embedding. max_episode_steps: a longer episode is taken for several; each has an
        entropy, reported where it ends.
        """
        settings = {
            name: value
            for name, value in locals().items()
            if name not in ("self", "env", "__class__")
        }
        RecordConstructorArgs.__init__(self, **settings)
        gymnasium.Wrapper.__init__(self, env)
        self.record = ExplorationRecord(env.observation_space, env.spec, 1, env=env, **settings)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Resets the environment; an episode that was running is forgotten, but for the cells it
        visited."""
        self.record.forget([0])
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Steps the environment and adds to `info`."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        rows, ended = np.array([0]), np.array([terminated or truncated])
        novelty, entropy = self.record.see(rows, stacked([observation]), [info], ended)
        info = {**info, "novelty": float(novelty[0])}
        if self.record.coverage is not None:
            info["coverage"] = self.record.coverage
        if np.isfinite(entropy[0]):
            info["episode_entropy"] = float(entropy[0])
        return observation, reward, terminated, truncated, info


class VectorExplorationInfo(gymnasium.vector.VectorWrapper):
    """The same for a vector environment, in any of Gymnasium's autoreset modes; arguments as above.

    Entries of `info` are arrays over the environments with a mask beside them, `_novelty`, as
    Gymnasium has it: it is False where a step was the reset to the next episode. `episode_entropy`
    is there when an episode has ended.
    """

    def __init__(self, env: gymnasium.vector.VectorEnv, **settings: Any) -> None:
        super().__init__(env)
        self.autoreset_mode = env.metadata.get("autoreset_mode")
        if not isinstance(self.autoreset_mode, AutoresetMode):
            raise ValueError(
                f"The vector environment {env} does not say when it resets: set "
                "metadata['autoreset_mode'] to one of "
                f"Gymnasium's AutoresetMode, got {self.autoreset_mode!r}."
            )
        self.record = ExplorationRecord(
            env.single_observation_space, env.spec, env.num_envs, **settings
        )
        self._ended = np.zeros(env.num_envs, bool)  # by the latest step

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Resets the environments, or those of `reset_mask`; episodes that were running there are
        forgotten."""
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        # before anything changes here: it may refuse the mask
        reset = self.env.reset(seed=seed, options=options)
        self.record.forget(np.flatnonzero(mask).tolist())
        self._ended[mask] = False
        return reset

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps the environments and adds to `info`."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        ended = np.logical_or(terminated, truncated)
        resets = self._ended & (self.autoreset_mode is AutoresetMode.NEXT_STEP)
        rows = np.flatnonzero(~resets)
        seen, told = [], []
        for row in rows.tolist():
            final = self.autoreset_mode is AutoresetMode.SAME_STEP and ended[row]
            seen.append(
                infos["final_obs"][row]
                if final
                else each_part(lambda part, row=row: part[row], observations)
            )
            told.append(_info_of(infos["final_info"] if final else infos, row))
        novelty, entropy = np.zeros((2, 0))
        if len(rows):
            novelty, entropy = self.record.see(rows, stacked(seen), told, ended[rows])
        added = self._spread(rows, {"novelty": novelty, "episode_entropy": entropy})
        if self.record.coverage is not None:  # of all environments together
            added |= {
                "coverage": np.full(self.num_envs, self.record.coverage),
                "_coverage": np.ones(self.num_envs, bool),
            }
        self._ended = ended
        return observations, rewards, terminated, truncated, {**infos, **added}

    def _spread(self, rows: np.ndarray, entries: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Values of some rows, and which of them are there, as arrays over all environments."""
        spread = {}
        for name, values in entries.items():
            there = np.isfinite(values)
            if there.any() or name != "episode_entropy":
                spread[name] = np.zeros(self.num_envs, values.dtype)
                spread[f"_{name}"] = np.zeros(self.num_envs, bool)
                spread[name][rows[there]], spread[f"_{name}"][rows[there]] = values[there], True
        return spread


class ExplorationRecord:
    """What environments have seen: a memory of states, a map of cells, and the episodes that are
    running."""

    def __init__(
        self,
        observation_space: gymnasium.Space,
        spec: Any,
        num_envs: int,
        position: Sequence[str] | Sequence[int] | None = None,
        states: StateFunction | None = None,
        bounds: Pairs | None = None,
        cells: int = 100,
        num_neighbours: int = 3,
        memory: str = "auto",
        entropy_order: int | float = 1.001,
        bandwidth: int | float = 1.0,
        seed: int = 0,
        max_episode_steps: int = 1000,
        env: gymnasium.Env | None = None,
    ) -> None:
        for name, value in (
            ("cells", cells),
            ("num_neighbours", num_neighbours),
            ("max_episode_steps", max_episode_steps),
        ):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")
        robot = known_robot(spec) if position is None else None
        env_id = robot.name if robot is not None else None
        self.places = StateSource(observation_space, env_id=env_id, position=position, seed=seed)
        self.source = self.places
        if states is not None:
            self.source = StateSource(observation_space, states=states, seed=seed)
        width = len(self.places.position) or (0 if robot is None else robot.position_dim)
        if bounds is None and robot is not None:
            bounds = robot.coverage_bounds
        elif bounds is None:
            bounds = _bounds_of(observation_space, self.places)
        self.map = CoverageMap(width, bounds, cells) if width else None
        self.found = found_places(spec, observation_space, env) if self.map is None else None
        self.num_envs, self.num_neighbours = num_envs, num_neighbours
        self.longest = max_episode_steps
        self.memory: Memory | None = None
        self._kind = memory
        # an unknown kind is refused here, not when the first episode has ended
        make_memory(memory, 1)
        self.running: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in range(num_envs)]
        self._encode = jax.jit(Encoding.states)
        self._entropy = jax.jit(
            lambda states, mask: renyi_entropy(states, entropy_order, bandwidth, mask)
        )

    @property
    def coverage(self) -> int | None:
        """Cells visited so far; None where nothing says what they are."""
        if self.map is not None:
            return len(self.map.visited)
        return None if self.found is None else len(self.found.visited)

    def see(
        self,
        rows: Int[np.ndarray, " B"],
        observations: Any,
        infos: Infos,
        ended: Bool[np.ndarray, " B"],
    ) -> tuple[Float[np.ndarray, " B"], Float[np.ndarray, " B"]]:
        """What one step of the environments `rows` led to: the novelty of each, and the entropies
        of episodes that ended."""
        raw, beside = self.source.read(observations, infos)
        if self.map is not None:
            self.map.see(
                beside if self.source is self.places else self.places.read(observations, infos)[1]
            )
        if self.found is not None:
            self.found.see(observations, infos)
        novelty = np.zeros(len(rows))
        if self.memory is not None:
            distances, _ = self.memory.query(
                self._states(raw, beside, self.num_envs), self.num_neighbours
            )
            known = np.where(np.isfinite(distances), distances, 0.0)
            novelty = np.log1p(np.sqrt(np.sum(known.astype(np.float64) ** 2, axis=1)))
        entropy = np.full(len(rows), np.nan)
        for index, row in enumerate(rows.tolist()):
            self.running[row].append((raw[index], beside[index]))
            if ended[index] or len(self.running[row]) >= self.longest:
                entropy[index] = self._finish(row)
        return novelty, entropy

    def forget(self, rows: Sequence[int]) -> None:
        """Drops the episodes that run there: they have no end, and so no entropy and no place in
        the memory."""
        for row in rows:
            self.running[row] = []

    def _finish(self, row: int) -> float:
        """An episode has ended: its entropy; its states enter the memory."""
        raw, beside = (np.stack(part) for part in zip(*self.running[row], strict=True))
        self.running[row] = []
        if not self.source.fitted:
            self.source.fit(raw)
        number, padded = len(raw), padded_length(len(raw))
        states = self._states(raw, beside, padded)
        if self.memory is None:
            self.memory = make_memory(self._kind, states.shape[1])
        self.memory.insert(states)
        filled = np.pad(states, ((0, padded - number), (0, 0)))
        return float(self._entropy(filled, np.arange(padded) < number))

    def _states(self, raw: np.ndarray, beside: np.ndarray, padded: int) -> Float[np.ndarray, "B D"]:
        """States of rows, encoded with padding so that few programs are compiled."""
        extra = padded - len(raw)
        filled = [np.pad(part, [(0, extra)] + [(0, 0)] * (part.ndim - 1)) for part in (raw, beside)]
        states: Array = self._encode(self.source.encoding, *filled)
        return np.asarray(states)[: len(raw)]


class CoverageMap:
    """Which cells of position space have been visited."""

    def __init__(self, dim: int, bounds: Pairs | None, cells: int) -> None:
        self.visited: set[tuple[int, ...]] = set()
        self.cells, self.bounds = cells, None
        if bounds is None:
            return
        self.bounds = checked_bounds(bounds, dim)

    def see(self, positions: Float[np.ndarray, "B C"]) -> None:
        """Count the cells of these positions as visited."""
        places = positions.astype(np.float64)
        if self.bounds is None:
            index = np.floor(places)
        else:
            low, high = self.bounds[:, 0], self.bounds[:, 1]
            index = np.clip(np.floor((places - low) / (high - low) * self.cells), 0, self.cells - 1)
        self.visited.update(tuple(map(int, row)) for row in index if np.isfinite(row).all())


def known_robot(spec: Any) -> EnvSpec | None:
    """The library's description of an environment whose position it finds in the infos; None for
    all others."""
    moved = {} if spec is None else spec.kwargs
    if spec is None or not moved.get("exclude_current_positions_from_observation", True):
        return None  # the orientation stands in other columns then
    if robot_of(spec.id) is None:
        return None
    try:
        robot = describe(spec.id, (), (), "vectors")
    except ValueError:  # no Box spaces, say
        return None
    return robot if robot.position_dim and robot.position_in_info else None


def _bounds_of(space: gymnasium.Space, places: StateSource) -> Pairs | None:
    """Bounds of the observation's columns that are the position, if they have any."""
    if not places.position or not isinstance(space, gymnasium.spaces.Box):
        return None
    known = [pair for pair in column_bounds(space, places.position) if pair is not None]
    return known if len(known) == len(places.position) else None


def _info_of(infos: Mapping[str, Any], row: int) -> dict[str, Any]:
    """The info of one environment, of those that a vector environment has put together."""
    info = {}
    for name, values in infos.items():
        mask = infos.get(f"_{name}")
        if not name.startswith("_") and (mask is None or mask[row]):
            info[name] = _info_of(values, row) if isinstance(values, dict) else values[row]
    return info
