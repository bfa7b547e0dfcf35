"""Learning from episodes while they run: what may be drawn, what it is paid, and that nothing of it
is left when the episode has ended."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.run_outcomes import assert_same, outcome
from support.small_rewards import SMALL_REWARDS

from element_rl.agents.sac import SACConfig
from element_rl.commands.explore import _title
from element_rl.entropy import knn_shares
from element_rl.runs.watching import Interrupted
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.explore import explore
from element_rl.training.off_policy.explorer import Explorer
from element_rl.training.off_policy.launch import create_run, reopen_run
from element_rl.training.off_policy.learner import NOTED_TIMES
from element_rl.training.off_policy.resolving import resolved

LIMIT = 80
MAZE = ExploreConfig(
    "PointMaze-v0",
    physics="jax",
    envs_per_agent=4,
    steps=1_024,
    seeds=2,
    replay_size=1_200,
    random_seeds=0,
    learn_from="running",
    estimator="knn",
    env_options=(f"max_episode_steps={LIMIT}",),
    sac=SACConfig(hidden_sizes=(8, 8), batch_size=8, learn_start=10_000),  # they act at random
)


def acted(**settings: Any) -> Explorer:
    """An explorer in the middle of episodes."""
    explorer = Explorer(*resolved(dataclasses.replace(MAZE, **settings)), None)
    while explorer.step < explorer.config.steps:
        explorer.train_chunk()
    explorer.settle()
    return explorer


def drawable(explorer: Explorer, agent: int) -> np.ndarray:
    """Slots that may be drawn."""
    ledger, replay = explorer.learner.ledger, explorer.learner.state.replay
    capacity, num_envs = replay.observation.shape[1], explorer.config.num_envs
    tails, counts = ledger.sampleable()[agent]
    places = [
        (tail + num_envs * np.arange(count)) % capacity
        for tail, count in zip(tails, counts, strict=True)
    ]
    return np.asarray(replay.sampleable)[agent, np.concatenate(places)]


def test_without_notes_all_but_the_newest_transitions_may_be_drawn() -> None:
    with acted(reward="extrinsic") as explorer:
        ledger, steps = explorer.learner.ledger, explorer.step
        for agent in range(2):
            slots = drawable(explorer, agent)
            assert len(set(slots.tolist())) == len(slots)
            own = slice(4 * agent, 4 * agent + 4)
            running = ledger.running_length[own]
            assert len(slots) == steps - (running > 0).sum()  # nothing has been dropped yet
    with acted(reward="extrinsic", learn_from="ended") as explorer:
        running = explorer.learner.ledger.running_length[:4].sum()
        assert len(drawable(explorer, 0)) == explorer.step - running


def test_every_transition_that_may_be_drawn_leads_where_it_led() -> None:
    """In the maze a step of the point is its action, unless a wall is in the way."""
    with acted(reward="extrinsic") as explorer:
        replay = jax.device_get(explorer.learner.state.replay)
        slots = drawable(explorer, 1)
        moved = (
            replay.observation[1, (slots + 4) % replay.observation.shape[1]]
            - replay.observation[1, slots]
        )
        free = np.abs(moved).max(axis=1) > 0
        assert free.mean() > 0.5
        along = (moved * replay.action[1, slots]).sum(axis=1)
        assert (along[free] > 0).mean() > 0.95


def test_running_episodes_are_noted_as_they_are_so_far() -> None:
    """And the transitions after the last look may not be drawn."""
    with acted(beta=0.0) as explorer:
        learner, ledger = explorer.learner, explorer.learner.ledger
        replay, growth = jax.device_get((learner.state.replay, learner.state.rewards.growth))
        capacity, every = replay.observation.shape[1], LIMIT // NOTED_TIMES
        assert ledger.released.max() > every
        assert (ledger.released <= np.maximum(ledger.running_length - 1, 0)).all()
        assert (ledger.running_length - 1 - ledger.released < every + 16).all()
        for row in np.flatnonzero(ledger.released).tolist():
            agent, length = row // 4, int(ledger.released[row])
            slots = ledger.running_slots(row)[:length]
            states = replay.state[agent, (slots + 4) % capacity]
            shares = np.asarray(knn_shares(jnp.asarray(states), 5))
            usual = max(ledger.usual_length(agent), length)
            assert usual == LIMIT
            noted = replay.notes["episode_entropy"][agent, slots]
            # growth may have changed with an episode that has ended since
            close = {"rtol": 1e-4, "atol": 0.1}
            expected = shares + growth[agent] * np.log(usual / length)
            np.testing.assert_allclose(noted, expected, **close)
            np.testing.assert_allclose(noted - expected, (noted - expected)[0], atol=1e-3)
            assert set(slots.tolist()) <= set(drawable(explorer, agent).tolist())


@pytest.mark.parametrize("memory", ["exact", "hnsw", "spaced"])
def test_episodes_that_have_ended_are_noted_as_if_nobody_had_looked(memory: Any) -> None:
    """The first episodes apart, which worlds cut off: these are taken to go on."""
    settings: dict[str, Any] = {"memory": memory, "remember": "always"}
    notes = []
    for learn_from in ("running", "ended"):
        with acted(**settings, learn_from=learn_from) as explorer:
            learner = explorer.learner
            replay, rewards = jax.device_get((learner.state.replay, learner.state.rewards))
            ended = np.setdiff1d(
                drawable(explorer, 0),
                np.concatenate([learner.ledger.running_slots(row) for row in range(4)]),
            )
            later = ended[ended >= 4 * (LIMIT + 1)]
            assert len(later) > 100
            notes.append(
                ({name: note[0, later] for name, note in replay.notes.items()}, rewards.memory_size)
            )
    (one, one_size), (other, other_size) = notes
    np.testing.assert_array_equal(one_size, other_size)
    for name, values in one.items():
        np.testing.assert_allclose(values, other[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_first_episodes_that_worlds_cut_off_count_as_if_they_went_on() -> None:
    """The second of all is paid for what is to come as the first has grown."""
    noted = []
    for learn_from in ("running", "ended"):
        # with a kernel of the maze's size: nearest neighbours of a short walk are its own steps
        with acted(beta=0.0, steps=192, estimator="kde", learn_from=learn_from) as explorer:
            noted.append(jax.device_get(explorer.learner.state.replay.notes["episode_entropy"]))
    slots = 4 * np.arange(LIMIT // 4)
    np.testing.assert_array_equal(noted[0][:, slots], noted[1][:, slots])
    gained = (noted[0] - noted[1])[:, 4 * np.arange(2 * LIMIT // 4) + 1] / np.log(2.0)
    assert (gained.min(axis=1) > 0.01).any()  # a share of log(80 / 40), the same for all states
    np.testing.assert_allclose(gained, gained[:, :1] + 0 * gained, atol=1e-4)


@pytest.mark.parametrize("reward", ["e3b", "ngu", "re3", "element-paper", "element + 0.5*rnd"])
def test_rewards_with_notes_learn_from_running_episodes(reward: str) -> None:
    options = tuple(
        f"{option}={list(value) if isinstance(value, tuple) else value}"
        for option, value in SMALL_REWARDS.get(reward, {}).items()
        if reward != "element-paper"
    )
    learner = SACConfig(hidden_sizes=(8, 8), batch_size=8, learn_start=100)
    changed = {"reward": reward, "reward_options": options, "estimator": None, "sac": learner}
    with acted(**changed) as explorer:
        assert explorer.learner.updates > 0
        assert explorer.learner.ledger.released.any()
        assert np.isfinite(explorer.learner.parameters()["weight_0"]).all()


def test_a_run_is_interrupted_in_the_middle_of_episodes_and_resumed(tmp_path: Path) -> None:
    """What may be drawn of the running episodes is in the checkpoint."""
    learner = SACConfig(hidden_sizes=(8, 8), batch_size=8, learn_start=100)
    config = dataclasses.replace(MAZE, sac=learner, log_every=256, checkpoint_every=320)
    whole, parted = (create_run(config, tmp_path / name) for name in ("whole", "parted"))
    explore(config, whole)
    asked = iter([False] * 6 + [True])
    with pytest.raises(Interrupted):
        explore(config, parted, stop=lambda: next(asked))
    explore(config, reopen_run(config, parted.path), resume=True)
    assert_same(outcome(whole), outcome(parted))
    assert whole.read_metrics()["entropy_growth"].max() > 0


def test_environments_on_the_host_too() -> None:
    """There learning begins long before the first of several episodes that began together is
    over."""
    learner = SACConfig(hidden_sizes=(8, 8), batch_size=8, learn_start=64)
    settings = {"physics": "host", "workers": 0, "chunk_steps": 32, "sac": learner}
    updates = []
    for learn_from in ("running", "ended"):
        with acted(**settings, steps=256, learn_from=learn_from) as explorer:
            updates.append(explorer.learner.updates)
            assert explorer.learner.ledger.released.any() == (learn_from == "running")
    assert updates[0] > 100
    assert updates[1] == 0


@pytest.mark.parametrize(
    ("settings", "is_said"),
    [
        ({}, True),
        ({"learn_from": "running"}, False),
        ({"envs_per_agent": 1}, False),
        ({"steps": 100_000}, False),
        ({"physics": "jax"}, False),  # worlds stagger their first episodes
        ({"reward": "random"}, False),
    ],
)
def test_it_is_said_where_learning_begins_late(settings: dict[str, Any], is_said: bool) -> None:
    host = {"physics": "host", "learn_from": "ended", "estimator": None}
    config = dataclasses.replace(MAZE, **host | settings)
    lines = [line for line in _title(config, resolved(config)) if "Learning begins" in line]
    assert len(lines) == is_said
    if is_said:
        assert lines[0].startswith(f"Learning begins at step {4 * LIMIT}, when the first episodes")
