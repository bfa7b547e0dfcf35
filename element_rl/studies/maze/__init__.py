"""How rewards are assigned: tabular agents in a 20 × 20 maze, each with one reward alone (section
"How Does ELEMENT Assign Intrinsic Rewards?").

A state is a cell, known by its coordinates. After every episode each visited cell c has

    r_ep(c)   mean of H(τ) over the episodes τ that have visited c                        (Eq. 11)
    r_l(c)    log(1 + ‖distances to the k nearest of all visits so far‖), by brute force  (Eq. 15)

each scaled to [0, 1] by its smallest and largest value over the visited cells. The agent then
learns by Q-learning, and acts ε-greedily through the next episode.

Readings:
1. Eq. 11 as printed is a mean over all episodes, with 0 for those without c: that pays for being
   visited often, the start most. The text below it ("average entropy of a state based on the
   episodes") and Algorithm 3, which notes H(τ) on each transition of τ, give the mean over the
   episodes with c. That is taken.
2. H is the kernel density estimate (Eq. 3) with σ = 1: of 700 states in some 200 cells most are
   equal, and the distances of Eq. 4 would be 0. It is computed from the visits of each cell, which
   gives the same number as from the 700 states.
3. Visits count as often as they were made; only the visit that is asked about is not its own
   neighbour. So once a cell has been visited more than k times its r_l is 0.
4. The agent learns as in Algorithm 3: when the episode has ended (r_ep is known only then), from
   all transitions it remembers, with the rewards as they are now. `learn_from` has two others: the
   episode alone, and every step as it is made, with the rewards of the last episode's end.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from element_rl.agents import q_learning
from element_rl.agents.q_learning import QLearningConfig
from element_rl.envs import maze
from element_rl.envs.maze import MAZE
from element_rl.rewards.unit_range import empty_range, unit_scaled, widened
from element_rl.storage.capacity import refuse_beyond_memory

RewardName = Literal["episodic", "lifelong", "both", "random"]
Watch = Callable[[int, int], None]  # episodes done, episodes in all


@dataclass(frozen=True)
class MazeConfig:
    """The paper's numbers where it gives any."""

    episodes: int = 300  # per seed
    steps: int = 700  # per episode
    seeds: int = 10  # independent agents per reward
    first_seed: int = 0  # of them; the others count up from it
    # random: a policy, with no reward
    rewards: tuple[RewardName, ...] = ("episodic", "lifelong", "both", "random")
    # k of r_l; the paper gives none for the maze (3 elsewhere, see docs/results/maze.md)
    num_neighbours: int = 100
    bandwidth: float = 1.0  # σ of the entropy, in squared cells
    lifelong_weight: float = 0.5  # β of the reward "both"
    snapshots: tuple[int, ...] = (5, 50, 300)  # episodes after which rewards and visits are shown
    learn_from: Literal["memory", "episode", "step"] = "memory"  # see the head of this module
    # after every episode, each of every remembered pair of state and action (learn_from memory)
    updates: int = 100
    q_learning: QLearningConfig = field(default_factory=QLearningConfig)

    def __post_init__(self) -> None:
        for name in ("episodes", "steps", "seeds", "num_neighbours", "updates"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if not self.bandwidth > 0 or not self.lifelong_weight >= 0:
            values = f"bandwidth {self.bandwidth} and lifelong_weight {self.lifelong_weight}"
            raise ValueError(
                "The bandwidth must be positive and the lifelong weight not negative, got "
                f"{values}."
            )
        agents = self.seeds * len(self.rewards)
        refuse_beyond_memory(
            f"A maze of {self.seeds} seeds, {self.episodes} episodes and {self.steps} steps",
            # of every agent three arrays per episode and cell, and its latest episode
            4 * agents * (3 * self.episodes * len(MAZE.next_cell) + 4 * self.steps),
        )
        if not self.rewards or len(set(self.rewards)) < len(self.rewards):
            raise ValueError(f"The maze needs one or more different rewards, got {self.rewards}.")

    @property
    def moments(self) -> tuple[int, ...]:
        """The snapshots that there are: those before the last episode, and the last."""
        return (
            *sorted({moment for moment in self.snapshots if 0 < moment < self.episodes}),
            self.episodes,
        )


@dataclass(frozen=True)
class MazeOutcome:
    """What P = seeds agents did in E episodes, for each reward."""

    config: MazeConfig
    visits: dict[str, Int[np.ndarray, "P E N"]]  # of each cell in each episode
    # of each cell after each episode; NaN where it was never visited
    rewards: dict[str, Float[np.ndarray, "P E N"]]
    entropy: dict[str, Float[np.ndarray, "P E"]]  # H of each episode, in nats
    seconds: float


class AgentKind(NamedTuple):
    """What differs between the rewards."""

    episodic_weight: Float[Array, ""]
    lifelong_weight: Float[Array, ""]
    epsilon: Float[Array, ""]


class Knowledge(NamedTuple):
    """What an agent has learned and remembers of S cells and A actions."""

    values: Float[Array, "S A"]
    tried: Bool[Array, "S A"]
    visits: Float[Array, " S"]
    entropy_sum: Float[Array, " S"]  # over the episodes that visited the cell
    episodes: Float[Array, " S"]  # that visited the cell


class Transitions(NamedTuple):
    """An episode: T transitions from `cell` by `action` to `next_cell`."""

    cell: Int[Array, " T"]
    action: Int[Array, " T"]
    next_cell: Int[Array, " T"]


def run_maze(config: MazeConfig, watch: Watch = lambda done, total: None) -> MazeOutcome:
    """All agents of all rewards at once, episode by episode."""
    began = time.monotonic()
    kinds = [_kind(name, config) for name in config.rewards for _ in range(config.seeds)]
    population = jax.tree.map(lambda *leaves: jnp.stack(leaves), *kinds)
    keys = jnp.stack(
        [
            _agent_key(name, config.first_seed + index)
            for name in config.rewards
            for index in range(config.seeds)
        ]
    )
    knowledge = jax.vmap(lambda _: _no_knowledge(config))(keys)
    history = []
    for episode in range(config.episodes):
        knowledge, measured = _run_episodes(
            knowledge, population, keys, jnp.asarray(episode), config
        )
        history.append(jax.device_get(measured))
        watch(episode + 1, config.episodes)
    visits, rewards, entropy = (np.stack(parts, axis=1) for parts in zip(*history, strict=True))
    rewards = np.where(np.cumsum(visits, axis=1) > 0, rewards, np.nan)
    rows = {
        name: slice(i * config.seeds, (i + 1) * config.seeds)
        for i, name in enumerate(config.rewards)
    }
    return MazeOutcome(
        config,
        {name: visits[part].astype(np.int64) for name, part in rows.items()},
        {name: rewards[part] for name, part in rows.items()},
        {name: entropy[part] for name, part in rows.items()},
        time.monotonic() - began,
    )


def _kind(name: RewardName, config: MazeConfig) -> AgentKind:
    episodic = 1.0 if name in ("episodic", "both") else 0.0
    lifelong = {"lifelong": 1.0, "both": config.lifelong_weight}.get(name, 0.0)
    epsilon = 1.0 if name == "random" else config.q_learning.epsilon
    return AgentKind(jnp.asarray(episodic), jnp.asarray(lifelong), jnp.asarray(epsilon))


def _agent_key(name: RewardName, seed: int) -> PRNGKeyArray:
    """Different for every reward and seed, whichever others are run."""
    return jax.random.fold_in(jax.random.key(seed), get_args(RewardName).index(name))


def _no_knowledge(config: MazeConfig) -> Knowledge:
    num_cells, num_actions = MAZE.next_cell.shape
    nothing = jnp.zeros(num_cells)
    values = q_learning.create(num_cells, num_actions, config.q_learning)
    return Knowledge(values, jnp.zeros((num_cells, num_actions), bool), nothing, nothing, nothing)


@partial(jax.jit, static_argnames="config")
def _run_episodes(
    knowledge: Knowledge,
    kinds: AgentKind,
    keys: Key[Array, " P"],
    episode: Int[Array, ""],
    config: MazeConfig,
) -> tuple[Knowledge, tuple[Float[Array, "P S"], Float[Array, "P S"], Float[Array, " P"]]]:
    """One episode of every agent."""
    return jax.vmap(partial(_run_episode, config=config), in_axes=(0, 0, 0, None))(
        knowledge, kinds, keys, episode
    )


def _run_episode(
    knowledge: Knowledge,
    kind: AgentKind,
    agent_key: PRNGKeyArray,
    episode: Int[Array, ""],
    config: MazeConfig,
) -> tuple[Knowledge, tuple[Float[Array, " S"], Float[Array, " S"], Float[Array, ""]]]:
    """One episode and what is learned from it; its visits, the rewards of all cells after it, and
    its entropy."""
    values, transitions = _walk(knowledge, kind, jax.random.fold_in(agent_key, episode), config)
    visits = jnp.zeros_like(knowledge.visits).at[transitions.next_cell].add(1.0)
    entropy = visits_entropy(visits, config.bandwidth)
    there = visits > 0
    knowledge = Knowledge(
        values,
        knowledge.tried.at[transitions.cell, transitions.action].set(True),
        knowledge.visits + visits,
        knowledge.entropy_sum + jnp.where(there, entropy, 0.0),
        knowledge.episodes + there,
    )
    rewards = state_rewards(knowledge, kind, config.num_neighbours)
    return knowledge._replace(values=_learn(knowledge, transitions, rewards, config)), (
        visits,
        rewards,
        entropy,
    )


def _walk(
    knowledge: Knowledge, kind: AgentKind, key: PRNGKeyArray, config: MazeConfig
) -> tuple[Float[Array, "S A"], Transitions]:
    """An episode from the start, and the values at its end."""
    rewards = state_rewards(knowledge, kind, config.num_neighbours)

    def move(
        carry: tuple[Float[Array, "S A"], Int[Array, ""]], key: PRNGKeyArray
    ) -> tuple[tuple[Float[Array, "S A"], Int[Array, ""]], Transitions]:
        values, cell = carry
        action = q_learning.act(values, cell, key, kind.epsilon)
        next_cell = maze.step(cell, action, jnp)
        if config.learn_from == "step":
            values = q_learning.update(
                values, cell, action, rewards[next_cell], next_cell, config.q_learning
            )
        return (values, next_cell), Transitions(cell, action, next_cell)

    (values, _), transitions = jax.lax.scan(
        move, (knowledge.values, jnp.asarray(MAZE.start)), jax.random.split(key, config.steps)
    )
    return values, transitions


def _learn(
    knowledge: Knowledge, transitions: Transitions, rewards: Float[Array, " S"], config: MazeConfig
) -> Float[Array, "S A"]:
    """The values after an episode."""
    if config.learn_from == "episode":

        def again(
            values: Float[Array, "S A"], seen: Transitions
        ) -> tuple[Float[Array, "S A"], None]:
            reward = rewards[seen.next_cell]
            return q_learning.update(
                values, *seen[:2], reward, seen.next_cell, config.q_learning
            ), None

        return jax.lax.scan(again, knowledge.values, transitions)[0]
    if config.learn_from == "step":
        return knowledge.values
    next_cell = jnp.asarray(MAZE.next_cell)
    return jax.lax.fori_loop(
        0,
        config.updates,
        lambda _, values: q_learning.update_known(
            values, knowledge.tried, rewards[next_cell], next_cell, config.q_learning
        ),
        knowledge.values,
    )


def state_rewards(knowledge: Knowledge, kind: AgentKind, num_neighbours: int) -> Float[Array, " S"]:
    """The reward of every cell as the agent knows it; 0 for cells that were never visited."""
    seen = knowledge.visits > 0
    mean_entropy = knowledge.entropy_sum / jnp.maximum(knowledge.episodes, 1.0)
    novelty = lifelong_novelty(knowledge.visits, num_neighbours)
    total = kind.episodic_weight * unit_scaled(
        mean_entropy, widened(empty_range(), mean_entropy, seen)
    )
    total += kind.lifelong_weight * unit_scaled(novelty, widened(empty_range(), novelty, seen))
    return jnp.where(seen, total, 0.0)


def lifelong_novelty(visits: Float[Array, " S"], num_neighbours: int) -> Float[Array, " S"]:
    """log(1 + ‖d‖) with d the distances from a visit of each cell to the k nearest other visits, of
    any cell (Eq. 15)."""
    distances, order = _neighbourhoods()
    there = visits[order]  # [S, S]: visits of the nearest cell, itself, then of the next, and so on
    there = there.at[:, 0].add(-jnp.minimum(there[:, 0], 1.0))  # a visit is not its own neighbour
    up_to = jnp.minimum(jnp.cumsum(there, axis=1), num_neighbours)
    among_k = jnp.diff(up_to, axis=1, prepend=0.0)
    return jnp.log1p(jnp.sqrt(jnp.sum(among_k * distances**2, axis=1)))


def visits_entropy(visits: Float[Array, " S"], bandwidth: float) -> Float[Array, ""]:
    """`entropy.kde_entropy` of the visited positions, each as often as it was visited, in nats (Eq.
    3)."""
    share = visits / jnp.sum(visits)
    density = jnp.exp(-jnp.asarray(_distances() ** 2, jnp.float32) / (2.0 * bandwidth)) @ share
    # far from all visits the density is 0
    return -jnp.sum(share * jnp.log(jnp.where(share > 0, density, 1.0)))


def _neighbourhoods() -> tuple[Float[Array, "S S"], Int[Array, "S S"]]:
    """For every cell the distances of all cells in ascending order, itself first, and which these
    are."""
    distances = _distances()
    order = np.argsort(distances, axis=1, kind="stable")
    return jnp.asarray(np.take_along_axis(distances, order, axis=1), jnp.float32), jnp.asarray(
        order
    )


def _distances() -> Float[np.ndarray, "S S"]:
    return np.linalg.norm(MAZE.position[:, None, :] - MAZE.position[None, :, :], axis=2)
