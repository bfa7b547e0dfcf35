"""Additivity: a reward that is a sum is found, one that is not is not, and episodes come out of a
run as they went in."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from element_rl.agents.sac import SACConfig
from element_rl.runs.folder import RunError, RunFolder
from element_rl.studies.additivity import additivity_parts, episodes_of
from element_rl.studies.additivity.additive_reward import (
    BY_LENGTH,
    BY_STEP,
    MEAN,
    SUM,
    AdditivityConfig,
    Predictions,
    episode_entropies,
    fit_additive_reward,
)
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.explore import Explorer, metric_columns
from element_rl.training.off_policy.resolving import resolved

SMALL = AdditivityConfig(hidden_sizes=(32,), epochs=40, batch_episodes=16, learning_rate=3e-3)


def walks(
    episodes: int = 120, steps: int = 40, short: float = 0.3
) -> tuple[np.ndarray, np.ndarray]:
    """Episodes at different speeds, whose entropy therefore differs; some end early, and padding
    holds nonsense."""
    random = np.random.default_rng(0)
    speed = random.uniform(0.02, 0.4, size=(episodes, 1, 1))
    turn = random.uniform(0, 2 * np.pi, size=(episodes, 1))
    direction = np.stack([np.cos(turn), np.sin(turn)], axis=-1)
    # The speed can be told from a state: an agent's state holds more than its place.
    place = speed * direction * np.arange(1, steps + 1)[None, :, None]
    states = np.concatenate([place, np.broadcast_to(speed, (episodes, steps, 1))], axis=-1).astype(
        np.float32
    )
    lengths = np.where(
        random.uniform(size=episodes) < short, random.integers(2, steps, size=episodes), steps
    )
    states[np.arange(steps) >= lengths[:, None]] = 1e6
    return states, lengths


def test_a_reward_that_is_a_sum_is_found() -> None:
    states, lengths = walks()
    fit = fit_additive_reward(states, lengths, SMALL)
    assert fit.full_length == 40
    assert (len(fit.training.entropy), len(fit.held_out.entropy)) == (84, 24)
    r_squared = {by: fit.held_out.r_squared(by) for by in (SUM, BY_STEP, BY_LENGTH, MEAN)}
    assert r_squared[SUM] > 0.9
    assert r_squared[SUM] > max(r_squared[BY_STEP], r_squared[BY_LENGTH]) + 0.1
    assert abs(r_squared[MEAN]) < 0.2
    full = [fit.held_out.r_squared(by, 40) for by in (SUM, BY_STEP, BY_LENGTH)]
    assert full[0] > 0.9
    assert max(full[1:]) <= 0
    assert fit.held_out_error[-1] < fit.held_out_error[0] / 2
    assert fit.epoch == 1 + np.argmin(fit.validation_error)
    np.testing.assert_allclose(fit.held_out_error[fit.epoch - 1], fit.held_out.error(), rtol=1e-3)


def test_states_that_tell_nothing_predict_nothing() -> None:
    """Episodes of noise, all of one kind and length: what is left of the entropy is chance, which
    no sum foresees."""
    noise = np.random.default_rng(1).normal(size=(120, 40, 3)).astype(np.float32)
    fit = fit_additive_reward(noise, np.full(120, 40), dataclasses.replace(SMALL, epochs=5))
    assert fit.held_out.r_squared() < 0.5


def test_the_same_seed_fits_the_same() -> None:
    states, lengths = walks()
    config = dataclasses.replace(SMALL, epochs=3)
    first, second = (fit_additive_reward(states, lengths, config) for _ in range(2))
    np.testing.assert_array_equal(first.held_out_error, second.held_out_error)
    np.testing.assert_array_equal(first.held_out.predicted[SUM], second.held_out.predicted[SUM])
    other = fit_additive_reward(states, lengths, dataclasses.replace(config, seed=1))
    assert not np.array_equal(first.held_out.entropy, other.held_out.entropy)


def test_entropies_are_those_of_the_true_states() -> None:
    states, lengths = walks()
    entropies = episode_entropies(states, lengths, SMALL)
    for episode, length, entropy in zip(states, lengths, entropies, strict=True):
        true = episode[:length].astype(np.float64)
        kernel = np.exp(-np.sum((true[:, None] - true[None]) ** 2, axis=2) / 2) / length
        np.testing.assert_allclose(
            -0.5 * np.log2(np.trace(kernel @ kernel @ kernel)), entropy, atol=1e-4
        )


def test_r_squared_by_hand() -> None:
    predictions = Predictions(
        np.array([1.0, 2.0, 3.0]),
        np.array([5, 5, 9]),
        {SUM: np.array([1.0, 2.0, 4.0]), MEAN: np.full(3, 2.0)},
    )
    assert predictions.r_squared() == pytest.approx(0.5)
    assert predictions.r_squared(MEAN) == 0.0
    assert predictions.r_squared(SUM, 5) == 1.0
    assert predictions.r_squared(SUM, 9) is None
    assert predictions.r_squared(SUM, 7) is None
    assert predictions.error() == pytest.approx(3**-0.5)


def test_what_cannot_be_fitted_is_said() -> None:
    states, lengths = walks(12)
    with pytest.raises(ValueError, match="9 episodes are too few"):
        fit_additive_reward(states[:9], lengths[:9], SMALL)
    with pytest.raises(ValueError, match="between 1 and 20"):
        fit_additive_reward(states[:, :20], lengths, SMALL)
    with pytest.raises(ValueError, match=r"got 0\.9 and 0\.1"):
        AdditivityConfig(held_out=0.9)


def test_parts_for_the_results() -> None:
    states, lengths = walks(200)
    heard: list[int] = []
    config = dataclasses.replace(SMALL, epochs=4, most_episodes=120)
    fit = fit_additive_reward(states, lengths, config, lambda epoch, epochs: heard.append(epoch))
    assert heard == [1, 2, 3, 4]
    curves, scatter, table, findings = additivity_parts(fit)
    assert [series.label for series in curves.series] == [
        "training",
        "held out",
        "length alone, held out",
    ]
    assert curves.series[1].x == (1.0, 2.0, 3.0, 4.0)
    assert [len(group.x) for group in scatter.groups] == [84, 24]
    assert scatter.diagonal
    assert [row[0] for row in table.rows] == [SUM, BY_STEP, BY_LENGTH, MEAN]
    assert "84 training and 24 held-out episodes" in table.note
    assert f"R² {fit.held_out.r_squared():.3f}" in findings[0]
    assert "full 40 steps" in findings[1]


TINY = ExploreConfig(
    "Hopper-v5",
    reward="extrinsic",
    steps=240,
    seeds=2,
    replay_size=100,  # so small that it comes round and forgets episodes
    chunk_steps=12,
    checkpoint_every=240,
    random_seeds=0,
    workers=0,
    env_options=("max_episode_steps=30",),
    sac=SACConfig(hidden_sizes=(8,), batch_size=8, learn_start=10_000),
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, list[list[np.ndarray]]]:
    """A run, and the states of each agent's finished episodes as they were when they had just
    ended."""
    config, spec, reward = resolved(TINY)
    path: Path = tmp_path_factory.mktemp("additivity") / "run"
    run = RunFolder.create(path, {"env": config.env}, metric_columns(reward))
    seen: list[list[np.ndarray]] = [[], []]
    with Explorer(config, spec, reward, run) as explorer:
        ingest = explorer.learner.ingest

        def recording(chunk):
            finished = ingest(chunk)
            for episode in finished:
                states = np.asarray(explorer.learner.state.replay.state[episode.agent])
                slots = (episode.start + 1 + np.arange(episode.length)) % len(states)
                seen[episode.agent].append(states[slots])
            return finished

        explorer.learner.ingest = recording
        explorer.train(lambda progress: None, lambda: False)
    return run, seen


@pytest.mark.parametrize("agent", [0, 1])
def test_episodes_come_out_of_a_run_as_they_went_in(trained, agent: int) -> None:
    run, seen = trained
    states, lengths = episodes_of(run, agent)
    kept = seen[agent][-len(lengths) :]
    assert 1 < len(lengths) < len(seen[agent])  # the ring has come round
    assert [len(episode) for episode in kept] == lengths.tolist()
    for stored, length, episode in zip(states, lengths, kept, strict=True):
        np.testing.assert_array_equal(stored[:length], episode)
        assert not stored[length:].any()


def test_an_agent_that_is_not_there_is_named(trained) -> None:
    with pytest.raises(RunError, match="agents 0 to 1, and no agent 2"):
        episodes_of(trained[0], 2)
