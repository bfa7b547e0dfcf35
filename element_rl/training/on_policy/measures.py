"""Rollouts of agents, measured: their visits and episodes, and the means of what is learned.

Beside what `training.measures` counts:

    furthest            largest coordinate along the first coverage axis, since the beginning
                        (Mario: x reached)
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
from jaxtyping import Float

from element_rl.acting.group_rollout import Piece
from element_rl.acting.rollout import Rollout
from element_rl.entropy import evaluation_entropy
from element_rl.envs.spec import EnvSpec, coverage_cell
from element_rl.training.loop import part
from element_rl.training.measures import Measures
from element_rl.training.on_policy.agent import Episode

_entropy = jax.jit(evaluation_entropy)


class RolloutMeasures:
    """Running measurements of P agents."""

    def __init__(self, spec: EnvSpec, num_agents: int, state_dim: int) -> None:
        self.spec = spec
        self.counts = Measures.of(spec, num_agents)
        self.furthest = np.full(num_agents, -np.inf)
        # of the latest finished episode that has some
        self.last_states = [np.zeros((0, state_dim), np.float32)] * num_agents
        # of metrics since the last line
        self.sums: list[dict[str, float]] = [{} for _ in range(num_agents)]
        # actions, seed and worth of the episode to look at
        self.best: list[dict[str, np.ndarray]] = [{} for _ in range(num_agents)]

    def see_rollout(self, agent: int, rollout: Rollout | Piece) -> None:
        """Count visits."""
        positions = rollout.positions[0 if rollout.begins else 1 :]
        if self.counts.mapped:
            seen = rollout.observations[0 if rollout.begins else 1 :]
            self.counts.visit(agent, coverage_cell(self.spec, positions, seen))
        if self.spec.has_map:
            self.furthest[agent] = max(self.furthest[agent], float(positions[:, 0].max()))

    def see_metrics(self, agent: int, metrics: Mapping[str, float]) -> None:
        """Add up what was learned."""
        sums = self.sums[agent]
        for name, value in metrics.items():
            sums[name] = sums.get(name, 0.0) + value
            sums[f"{name}/count"] = sums.get(f"{name}/count", 0.0) + 1.0

    def see_episode(self, agent: int, rollout: Rollout | Piece, episode: Episode) -> None:
        """Count an episode that has ended with this rollout."""
        self.counts.end_episode(agent, float(episode.rewards.sum()), len(episode.actions))
        if len(episode.states):
            self.last_states[agent] = episode.states[1:]
        worth = self._worth(episode)
        if not self.best[agent] or tuple(worth) > tuple(self.best[agent]["worth"]):
            choices = episode.actions.ndim == 1
            actions = episode.actions.astype(np.int32 if choices else np.float32)
            self.best[agent] = {
                "worth": worth,
                "actions": actions,
                "seed": np.array(rollout.episode_seed, np.int64),
            }

    def row(self, agent: int) -> dict[str, float]:
        """The agent's line, and a fresh window."""
        states = self.last_states[agent]
        entropy = episode_entropy(states) if len(states) else np.nan
        row = self.counts.line(agent, entropy, len(states))
        if self.spec.has_map:
            row["furthest"] = self.furthest[agent]
        sums = self.sums[agent]
        row |= {
            name: sums[name] / sums[f"{name}/count"] for name in sums if not name.endswith("/count")
        }
        if "element_remembered" in row:
            row["memory_size"] = row["element_remembered"]
        self.sums[agent] = {}
        return {name: float(value) for name, value in row.items()}

    def totals(self) -> dict[str, list[Any]]:
        """Coverage, furthest place and best episode so far, of each agent."""
        furthest = self.furthest.tolist() if self.spec.has_map else [None] * len(self.furthest)
        return {"furthest": furthest, **self.counts.totals()}

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything, for a checkpoint."""
        arrays = self.counts.to_arrays() | {"furthest": self.furthest}
        for agent, states in enumerate(self.last_states):
            arrays[f"last_states/{agent}"] = states
            arrays |= {
                f"sums/{agent}/{name}": np.array(value) for name, value in self.sums[agent].items()
            }
            arrays |= {f"best/{agent}/{name}": array for name, array in self.best[agent].items()}
        return arrays

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The opposite of `to_arrays`."""
        self.counts.restore(arrays)
        self.furthest[...] = arrays["furthest"]
        for agent in range(len(self.last_states)):
            self.last_states[agent] = arrays[f"last_states/{agent}"]
            self.sums[agent] = {
                name: float(value) for name, value in part(arrays, f"sums/{agent}/").items()
            }
            self.best[agent] = part(arrays, f"best/{agent}/")

    def _worth(self, episode: Episode) -> Float[np.ndarray, " 3"]:
        """Cells first, then how far it came, then its return: the best episode is the one to look
        at."""
        returned = float(episode.rewards.sum())
        if not self.spec.has_map:
            return np.array([0.0, 0.0, returned])
        cells = len(np.unique(coverage_cell(self.spec, episode.positions)))
        return np.array([cells, float(episode.positions[:, 0].max()), returned])


def episode_entropy(states: Float[np.ndarray, "N D"]) -> float:
    """`evaluation_entropy` of an episode's states; padded to a power of two, so few programs are
    compiled."""
    length = 1 << max(len(states) - 1, 63).bit_length()
    padded = np.pad(states, ((0, length - len(states)), (0, 0)))
    return float(_entropy(jnp.asarray(padded), jnp.asarray(np.arange(length) < len(states))))


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
