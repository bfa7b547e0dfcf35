"""A run to fine-tune from, written by hand.

On MountainCarContinuous-v0 an action a costs 0.1 a² per step, so a policy that always does the same
has a known return. The replays are written by hand too: what an observation holds says which
transition it is.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from element_rl.agents import sac
from element_rl.agents.sac import SACConfig
from element_rl.replay.ledger import Ledger
from element_rl.runs.folder import RunFolder
from element_rl.storage.trees import tree_to_arrays
from element_rl.training.finetune import FinetuneConfig
from element_rl.training.finetune.start import chosen_start
from element_rl.training.finetune.tasks import task_of
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.launch import create_run

CAR = "MountainCarContinuous-v0"
EPISODE = 20
SMALL = SACConfig(hidden_sizes=(8,), batch_size=8, learn_start=100)
SOURCE = ExploreConfig(
    CAR,
    reward="rnd",
    recent_scale=True,
    steps=400,
    seeds=2,
    seed=3,
    replay_size=100,
    chunk_steps=20,
    checkpoint_every=100,
    workers=0,
    env_options=(f"max_episode_steps={EPISODE}",),
    sac=SMALL,
)
AGENT = sac.agent(SMALL, 2, 1)  # the car's observation and action
ACTIONS = {
    100: (0.9, 0.3),
    200: (0.1, 0.8),
    300: (0.5, 0.05),
    340: (0.0, 0.0),
    400: (0.6, 0.4),
}  # per step and agent
LENGTHS = (
    (20, 7, 20, 20, 13, 20),
    (20, 20, 5),
)  # of the episodes in each agent's replay; those below 20 terminated
CAPACITY = 85  # of the run's replay: that of agent 0 has come round and lost its first two episodes
WARMUP = 70  # updates; not a multiple of a chunk


def written_run(path: Path) -> RunFolder:
    """Two agents with five checkpoints."""
    run = create_run(SOURCE, path)
    resume = tree_to_arrays(learned_agents(), "learner/agents") | replay_arrays()
    for step, actions in ACTIONS.items():
        run.save_checkpoint(step, population(*actions), None, resume, {})
    return run


def population(*actions: float) -> dict[str, np.ndarray]:
    policies = [acting(action) for action in actions]
    return {name: np.stack([policy[name] for policy in policies]) for name in policies[0]}


def acting(action: float, hidden: int = 8) -> dict[str, np.ndarray]:
    """A policy of one agent that always does the same, up to a deviation of 2e-9."""
    zeros = {
        "weight_0": np.zeros((2, hidden)),
        "weight_1": np.zeros((hidden, 2)),
        "bias_0": np.zeros(hidden),
    }
    policy = zeros | {"bias_1": np.array([np.arctanh(action), -20.0])}
    return {name: array.astype(np.float32) for name, array in policy.items()}


def learned_agents() -> sac.SACState:
    """Those of the run's newest checkpoint."""
    return eqx.tree_at(
        lambda agents: agents.log_temperature, fresh_agents((100, 101)), jnp.log(jnp.full(2, 0.7))
    )


def fresh_agents(seeds: Sequence[int]) -> sac.SACState:
    return create_agents(jnp.asarray(np.array(seeds, np.uint32)))


@jax.jit
def create_agents(seeds: jax.Array) -> sac.SACState:
    return jax.vmap(lambda seed: sac.create(jax.random.key(seed), 2, 1, SMALL))(seeds)


def replay_arrays() -> dict[str, np.ndarray]:
    """A checkpoint's replay that holds what is still there of it, with a running episode of three
    steps at its end."""
    ledger = Ledger(2, CAPACITY, EPISODE, 40)
    shapes = {"observation": (2,), "action": (1,), "extrinsic_reward": (), "state": (5,)}
    stored = {name: np.zeros((2, CAPACITY, *shape), np.float32) for name, shape in shapes.items()}
    stored["terminated"] = np.zeros((2, CAPACITY), bool)
    for agent, records in enumerate(experience()):
        for first in range(0, len(records["number"]) + 3, 8):
            cut = {name: array[first : first + 8] for name, array in records.items()}
            count = np.zeros(2, np.int64)
            count[agent] = min(8, len(records["number"]) + 3 - first)
            final = np.zeros((2, 8), bool)
            final[agent, : len(cut["final"])] = cut["final"]
            slots = ledger.place(final, count)[0][agent, : len(cut["number"])]
            stored["observation"][agent, slots] = np.stack([cut["number"], -cut["number"]], axis=1)
            stored["action"][agent, slots] = cut["number"][:, None] / 2_000
            stored["extrinsic_reward"][agent, slots] = cut["reward"]
            stored["terminated"][agent, slots] = cut["terminated"]
    replay = {f"learner/replay/{name}": array for name, array in stored.items()}
    return replay | {f"ledger/{name}": array for name, array in ledger.to_arrays().items()}


def experience() -> list[dict[str, np.ndarray]]:
    """The records of each agent, oldest first; every number tells agent and record, and the reward
    differs for each."""
    agents = []
    for agent, lengths in enumerate(LENGTHS):
        final = np.concatenate([np.arange(length + 1) == length for length in lengths])
        falls = np.concatenate(
            [(np.arange(length + 1) == length - 1) & (length < EPISODE) for length in lengths]
        )
        number = np.arange(len(final)) + 1_000 * agent
        agents.append(
            {
                "number": number,
                "reward": np.where(final, 0.0, -number / 7),
                "terminated": falls,
                "final": final,
            }
        )
    return agents


def settings(source: RunFolder, **changes: Any) -> FinetuneConfig:
    usual: dict[str, Any] = {
        "steps": 300,
        "episodes": 2,
        "log_every": 50,
        "checkpoint_every": 100,
        "replay": "kept",
    }
    return FinetuneConfig(source.path, **(usual | {"critic_warmup": WARMUP} | changes))


def start(source: RunFolder, **changes: Any) -> dict[str, Any]:
    config = settings(source, **changes)
    return chosen_start(task_of(config))


def assert_equal_leaves(a: Any, b: Any) -> None:
    for ours, theirs in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(ours, theirs)
