"""Episodes of worlds are observed together, with states that enter a memory and without: the same
as one after the other."""

import dataclasses
import json
from typing import Any

import jax
import numpy as np
import pytest
from support.small_rewards import SMALL_REWARDS

from element_rl.agents.sac import SACConfig
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.explorer import Explorer
from element_rl.training.off_policy.resolving import Resolved, resolved

MAZE = ExploreConfig(
    "PointMaze-v0",
    physics="jax",
    envs_per_agent=4,
    steps=2_560,
    seeds=2,
    replay_size=1_200,  # comes round
    random_seeds=0,
    env_options=("max_episode_steps=40",),
    sac=SACConfig(hidden_sizes=(8, 8), batch_size=8, learn_start=10_000),
)


@pytest.mark.parametrize("name", ["element", "e3b", "ngu", "re3"])
def test_rounds_are_the_same_as_one_after_the_other(name: str) -> None:
    options = tuple(
        f"{key}={json.dumps(value)}" for key, value in SMALL_REWARDS.get(name, {}).items()
    )
    settings = resolved(dataclasses.replace(MAZE, reward=name, reward_options=options))
    compare(settings)


@pytest.mark.parametrize(
    ("reward", "memory", "options"),
    [
        ("element", "exact", ()),
        ("element", "spaced", ("memory_capacity=64",)),
        ("element", "graph", ()),
        ("element+0.5*rnd", "exact", ("rnd.predictor_sizes=[8]", "rnd.target_sizes=[8]")),
    ],
)
def test_episodes_that_enter_a_memory_are_measured_together(
    reward: str, memory: Any, options: tuple[str, ...]
) -> None:
    config = dataclasses.replace(
        MAZE, reward=reward, reward_options=options, memory=memory, remember="always", steps=1_280
    )
    notes = compare(resolved(config))
    known = next(array for name, array in notes.items() if name.endswith("neighbour_distances"))
    assert np.isfinite(known).any()


def test_observing_within_windows_copies_no_replay() -> None:
    """What the program needs beside its arguments is no copy of what all agents have stored."""
    config = dataclasses.replace(MAZE, memory="exact", remember="always", replay_size=50_000)
    with Explorer(*resolved(config), None) as explorer:
        learner = explorer.learner
        where = np.zeros((1, 8, 7), np.int32)
        state = learner.state.replay, learner.state.rewards
        lowered = learner._finish.lower(
            *state, where, np.ones(1, np.int32), None, rows=40, remembers=True, together=2
        )
        sizes = lowered.compile().memory_analysis()
    stored = sum(leaf.nbytes for leaf in jax.tree.leaves(learner.state.replay))
    assert sizes.alias_size_in_bytes > 0.95 * stored  # written in place
    # of one agent of two: its states, turned round, and its notes
    one = sum(
        leaf[0].nbytes
        for leaf in (learner.state.replay.state, learner.state.replay.notes["neighbour_distances"])
    )
    assert sizes.temp_size_in_bytes < 4 * one


def compare(settings: Resolved) -> dict[str, np.ndarray]:
    """Both ways give the same; the notes at the end."""
    stored = []
    for in_rounds in (True, False):
        with Explorer(*settings, None) as explorer:
            assert explorer.learner.on_device
            explorer.learner.on_device = in_rounds
            while explorer.step < settings.config.steps:
                explorer.train_chunk()
            explorer.settle()
            stored.append(jax.device_get(explorer.learner.state))
    together, apart = stored
    for one, other in zip(
        jax.tree.leaves((together.replay, together.rewards)),
        jax.tree.leaves((apart.replay, apart.rewards)),
        strict=True,
    ):
        if jax.dtypes.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)
    notes: dict[str, np.ndarray] = together.replay.notes
    return notes
