"""What is measured while agents train on-policy: coverage, episodes, the means between two lines,
and the best episode.

    coverage            unique cells the agent has been in, since the beginning
    furthest            largest coordinate along the first coverage axis, since the beginning (Mario: x reached)
    episodic_entropy    matrix-based entropy of order 1.001 of the agent's latest episode, in bits (the paper's evaluation)
    entropy_saturation  that entropy over log2 T, its ceiling for an episode of T states
    episode_length, extrinsic_return     means over the episodes that ended since the last line
    best_return, best_length    the highest task return of an episode so far and its length; of equal ones the shortest
    everything else     means over the rollouts since the last line

A line belongs to a multiple of `log_every`: it is made when the agent's workers have delivered that
many steps, and written when all agents have. So all agents have the same steps in metrics.csv, and
the file is the same however they take turns.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from element_rl.acting.rollout import Rollout
from element_rl.entropy import renyi_entropy
from element_rl.envs.spec import EnvSpec, coverage_cell
from element_rl.training.on_policy.agent import Episode

EVALUATION_ORDER = 1.001
_COUNTERS = (
    "episodes",
    "furthest",
    "window_episodes",
    "window_length",
    "window_return",
    "best_return",
    "best_length",
)
_NEWER = (
    "best_return",
    "best_length",
)  # older checkpoints do not have them: then the best so far is of what follows


class Measures:
    """Running measurements of P agents."""

    def __init__(self, spec: EnvSpec, num_agents: int, state_dim: int) -> None:
        self.spec = spec
        self.visits = np.zeros((num_agents, *spec.coverage_cells), np.int32)
        self.furthest = np.full(num_agents, -np.inf)
        self.episodes = np.zeros(num_agents)
        self.window_episodes = np.zeros(num_agents)  # since the last line, as the two below
        self.window_length = np.zeros(num_agents)
        self.window_return = np.zeros(num_agents)
        # of any episode so far, and the length of that episode
        self.best_return = np.full(num_agents, -np.inf)
        self.best_length = np.zeros(num_agents)
        # of the latest finished episode that has some
        self.last_states = [np.zeros((0, state_dim), np.float32)] * num_agents
        # of metrics since the last line
        self.sums: list[dict[str, float]] = [{} for _ in range(num_agents)]
        # actions, seed and worth of the episode to look at
        self.best: list[dict[str, np.ndarray]] = [{} for _ in range(num_agents)]

    def see_rollout(self, agent: int, rollout: Rollout, metrics: Mapping[str, float]) -> None:
        """Count visits, and add up metrics."""
        positions = rollout.positions[0 if rollout.begins else 1 :]
        if self.spec.coverage_bounds is not None:
            counted = np.bincount(
                coverage_cell(self.spec, positions), minlength=self.visits[agent].size
            )
            self.visits[agent] += counted.reshape(self.spec.coverage_cells).astype(np.int32)
            self.furthest[agent] = max(self.furthest[agent], float(positions[:, 0].max()))
        sums = self.sums[agent]
        for name, value in metrics.items():
            sums[name] = sums.get(name, 0.0) + value
            sums[f"{name}/count"] = sums.get(f"{name}/count", 0.0) + 1.0

    def see_episode(self, agent: int, rollout: Rollout, episode: Episode) -> None:
        """Count an episode that has ended with this rollout."""
        self.episodes[agent] += 1
        self.window_episodes[agent] += 1
        self.window_length[agent] += len(episode.actions)
        task_return, length = float(episode.rewards.sum()), len(episode.actions)
        self.window_return[agent] += task_return
        if (task_return, -length) > (self.best_return[agent], -self.best_length[agent]):
            self.best_return[agent], self.best_length[agent] = task_return, length
        if len(episode.states):
            self.last_states[agent] = episode.states[1:]
        worth = self._worth(episode)
        if not self.best[agent] or tuple(worth) > tuple(self.best[agent]["worth"]):
            actions = episode.actions.astype(np.int32)
            self.best[agent] = {
                "worth": worth,
                "actions": actions,
                "seed": np.array(rollout.episode_seed, np.int64),
            }

    def coverage(self) -> Int[np.ndarray, " P"]:
        """Unique cells visited by each agent."""
        return np.count_nonzero(self.visits, axis=(1, 2))

    def row(self, agent: int) -> dict[str, float]:
        """The agent's line, and a fresh window."""
        ended = self.window_episodes[agent]
        length = len(self.last_states[agent])
        entropy = episode_entropy(self.last_states[agent]) if length else np.nan
        row = {
            "episodes": self.episodes[agent],
            "episode_length": self.window_length[agent] / ended if ended else np.nan,
            "extrinsic_return": self.window_return[agent] / ended if ended else np.nan,
            "episodic_entropy": entropy,
            "entropy_saturation": entropy / np.log2(length) if length > 1 else np.nan,
        }
        if self.spec.coverage_bounds is not None:
            row |= {"coverage": int(self.coverage()[agent]), "furthest": self.furthest[agent]}
        sums = self.sums[agent]
        row |= {
            name: sums[name] / sums[f"{name}/count"] for name in sums if not name.endswith("/count")
        }
        if "element_remembered" in row:
            row["memory_size"] = row["element_remembered"]
        self.sums[agent] = {}
        for name in ("window_episodes", "window_length", "window_return"):
            getattr(self, name)[agent] = 0.0
        return {name: float(value) for name, value in row.items()}

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything, for a checkpoint."""
        arrays = {"visits": self.visits} | {name: getattr(self, name) for name in _COUNTERS}
        for agent, states in enumerate(self.last_states):
            arrays[f"last_states/{agent}"] = states
            arrays |= {
                f"sums/{agent}/{name}": np.array(value) for name, value in self.sums[agent].items()
            }
            arrays |= {f"best/{agent}/{name}": array for name, array in self.best[agent].items()}
        return arrays

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The opposite of `to_arrays`."""
        for name in ("visits", *_COUNTERS):
            if name in arrays or name not in _NEWER:
                getattr(self, name)[...] = arrays[name]
        for agent in range(len(self.last_states)):
            self.last_states[agent] = arrays[f"last_states/{agent}"]
            self.sums[agent] = {
                name: float(value) for name, value in _part(arrays, f"sums/{agent}/").items()
            }
            self.best[agent] = _part(arrays, f"best/{agent}/")

    def _worth(self, episode: Episode) -> Float[np.ndarray, " 3"]:
        """Cells first, then how far it came, then its return: the best episode is the one to look
        at."""
        returned = float(episode.rewards.sum())
        if self.spec.coverage_bounds is None:
            return np.array([0.0, 0.0, returned])
        cells = len(np.unique(coverage_cell(self.spec, episode.positions)))
        return np.array([cells, float(episode.positions[:, 0].max()), returned])


def episode_entropy(states: Float[np.ndarray, "N D"]) -> float:
    """The paper's evaluation entropy of an episode's states, in bits; padded to a power of two, so
    few programs are compiled."""
    length = 1 << max(len(states) - 1, 63).bit_length()
    padded = np.pad(states, ((0, length - len(states)), (0, 0)))
    return float(_entropy(jnp.asarray(padded), jnp.asarray(np.arange(length) < len(states))))


@jax.jit
def _entropy(states: Float[Array, "N D"], mask: Bool[Array, " N"]) -> Float[Array, ""]:
    return renyi_entropy(states, EVALUATION_ORDER, 1.0, mask)


def _part(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


class PendingRows:
    """Lines of metrics that wait for those of the other agents."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self.seeds = seeds
        self._rows: dict[int, dict[int, dict[str, float]]] = {}  # step → agent → line

    def add(self, step: int, agent: int, row: dict[str, float]) -> None:
        self._rows.setdefault(step, {})[agent] = row

    def complete(self) -> list[dict[str, Any]]:
        """The lines of all steps that every agent has reached, in order; they are no longer
        pending."""
        ready = sorted(step for step, rows in self._rows.items() if len(rows) == len(self.seeds))
        return [
            {"step": step, "seed": self.seeds[agent], **rows[agent]}
            for step, rows in ((step, self._rows.pop(step)) for step in ready)
            for agent in range(len(self.seeds))
        ]

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {
            f"{step}/{agent}/{name}": np.array(value, np.float64)
            for step, rows in self._rows.items()
            for agent, row in rows.items()
            for name, value in row.items()
        }

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        for key, value in arrays.items():
            step, agent, name = key.split("/", 2)
            self._rows.setdefault(int(step), {}).setdefault(int(agent), {})[name] = float(value)
