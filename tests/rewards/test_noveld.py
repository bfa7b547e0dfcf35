"""NovelD's difference, its gate and its predictor against numbers by hand and plain NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.by_hand import episode_of, init, observe, reward_of, transitions, update

from element_rl.mlp import MLP
from element_rl.replay.ring import Transitions
from element_rl.rewards import Reward, RewardSpec
from element_rl.rewards.noveld import NoveldConfig, NoveldReward, NoveldState
from element_rl.rewards.visit_cells import Cells

SPEC = RewardSpec(
    observation_dim=3, action_dim=2, state_dim=4, max_episode_steps=40, total_steps=100
)
SMALL = {"feature_dim": 4, "target_sizes": (6,), "predictor_sizes": (8, 5)}
KEY = jax.random.key(0)


def noveld(**options: Any) -> NoveldReward:
    return NoveldReward(NoveldConfig(**(SMALL | options)))


def random_batch(seed: int, first: Any, size: int = 6) -> Transitions:
    rng = np.random.default_rng(seed)
    fields = {name: rng.normal(size=(size, 3)) for name in ("observation", "next_observation")}
    return transitions(size, {"first_visit": first}, **fields)


def numpy_mlp(network: MLP, inputs: Any) -> np.ndarray:
    hidden = np.asarray(inputs, np.float64)
    for layer, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        hidden = hidden @ np.asarray(weight, np.float64) + np.asarray(bias, np.float64)
        hidden = hidden if layer == len(network.weights) - 1 else np.maximum(hidden, 0)
    return hidden


def numpy_novelty(state: NoveldState, observation: Any, mean: Any = 0.0, std: Any = 1.0) -> Any:
    inputs = np.clip((np.asarray(observation, float) - mean) / std, -5, 5)
    error = numpy_mlp(state.predictor, inputs) - numpy_mlp(state.target, inputs)
    return np.linalg.norm(error, axis=1)


def test_by_hand() -> None:
    """The predictor says 0 where the target says (3 s, 4 s): the novelty of s is 5 |s|. From 1 to 2
    pays 10 − 2.5, from 2 to 1 nothing, 5 − 5; and 7.5 again only at a first visit."""
    target = MLP((jnp.array([[3.0, 4.0]]),), (jnp.zeros(2),))
    predictor = MLP((jnp.zeros((1, 2)),), (jnp.zeros(2),))
    reward = noveld(feature_dim=2, target_sizes=(), predictor_sizes=(), reward_scale=2.0)
    state = init(reward, KEY, RewardSpec(1, 1, 2, 8, 100))
    state = state._replace(target=target, predictor=predictor)
    batch = transitions(
        4,
        {"first_visit": [1.0, 1.0, 0.0, 1.0]},
        observation=[[1.0], [2.0], [1.0], [-3.0]],
        action=np.zeros((4, 1)),
        next_observation=[[2.0], [1.0], [2.0], [0.0]],
    )
    np.testing.assert_allclose(reward_of(reward, state, batch), [15.0, 0, 0, 0], rtol=1e-6)
    terms = reward.reward_terms(state, batch)
    np.testing.assert_allclose(terms["reward_lifelong"], [7.5, 0, 7.5, 0], rtol=1e-6)
    np.testing.assert_array_equal(terms["reward_episodic"], [1, 1, 0, 1])
    without = noveld(feature_dim=2, target_sizes=(), predictor_sizes=(), novelty_decay=0.0)
    np.testing.assert_allclose(reward_of(without, state, batch), [10, 5, 0, 0], rtol=1e-6)


def test_only_the_first_visit_of_a_cell_in_its_episode_pays() -> None:
    """Cells of width 0.5 from −0.125 on: 0 is the first state's. The next episode begins anew, with
    cells whitened by the one before."""
    reward = noveld()
    state = init(reward, KEY, SPEC)._replace(cells=Cells(jnp.eye(3), jnp.full(3, 0.25)))
    places = np.zeros((7, 3))
    places[:, 0] = [0.0, 0.3, 0.4, 0.5, 0.3, 0.1, 1.0]
    state, notes = observe(reward, state, episode_of(places))
    # cells 0, 0, 1, 1, 0, 0, 2: 0.3 / 0.5 + 0.25 is below 1, 0.4 / 0.5 + 0.25 is not
    np.testing.assert_array_equal(notes["first_visit"][:6], [0, 1, 0, 0, 0, 1])
    assert not np.asarray(notes["first_visit"])[6:].any()
    mean, std = places[1:, 0].mean(), places[1:, 0].std()
    keys = np.floor((places[:, 0] - mean) / std / 0.5 + 0.25)
    expected = [float(key not in keys[:row]) for row, key in enumerate(keys)][1:]
    _, notes = observe(reward, state, episode_of(places))
    np.testing.assert_array_equal(notes["first_visit"][:6], expected)
    assert expected != [0, 1, 0, 0, 0, 1]


def test_against_numpy_through_episodes_and_updates() -> None:
    reward, first = noveld(reward_scale=0.7), np.array([1.0, 0, 1, 1, 1, 1])
    state, seen = init(reward, KEY, SPEC), []
    for seed in range(3):
        visited = np.random.default_rng(seed).normal(1.0, 2.0, size=(9, 3)).astype(np.float32)
        state, _ = observe(reward, state, episode_of(visited))
        seen.append(visited[1:])
        moments = np.concatenate(seen).mean(0), np.concatenate(seen).std(0)
        batch = random_batch(10 + seed, first)
        loss = (numpy_novelty(state, batch.next_observation, *moments) ** 2 / 4).mean()
        state, metrics = update(reward, state, batch, KEY)
        np.testing.assert_allclose(metrics["noveld_rnd_loss"], loss, rtol=1e-4)
        after, before = (
            numpy_novelty(state, part, *moments)
            for part in (batch.next_observation, batch.observation)
        )
        difference = np.maximum(after - 0.5 * before, 0.0)
        np.testing.assert_allclose(
            reward_of(reward, state, batch), 0.7 * first * difference, rtol=1e-4, atol=1e-6
        )
        np.testing.assert_allclose(metrics["noveld_paid"], (difference > 0).mean())
        assert set(metrics) == set(reward.metric_names)


def test_only_the_predictor_learns_and_from_next_observations_alone() -> None:
    reward = noveld(learning_rate=0.01)
    state, batch = init(reward, KEY, SPEC), random_batch(0, np.ones(6))
    updated, _ = update(reward, state, batch, KEY)
    others, _ = update(reward, state, batch._replace(observation=batch.observation + 9.0), KEY)
    kept = ("target", "cells", "observations")
    for name in kept:
        for old, new in zip(
            *(jax.tree.leaves(getattr(known, name)) for known in (state, updated)), strict=True
        ):
            np.testing.assert_array_equal(old, new)
    for old, new, other in zip(
        *(jax.tree.leaves(known.predictor) for known in (state, updated, others)), strict=True
    ):
        assert not np.array_equal(old, new)
        np.testing.assert_array_equal(new, other)


def test_the_boundary_pays_and_not_what_was_learnt() -> None:
    """After one place was learnt, the step out of it pays, and the step within it next to nothing;
    without a difference all of what is far would pay as much."""
    reward = noveld(feature_dim=8, predictor_sizes=(32,), learning_rate=1e-2)
    state, rng = init(reward, KEY, SPEC), np.random.default_rng(0)
    near = rng.normal(0.0, 0.1, size=(64, 3)).astype(np.float32)
    batch = transitions(64, {"first_visit": np.ones(64)}, observation=near, next_observation=near)
    learn = jax.jit(
        lambda state, keys: jax.lax.scan(lambda s, k: reward.update(s, batch, k), state, keys)
    )
    state, _ = learn(state, jax.random.split(KEY, 300))
    out = batch._replace(next_observation=batch.next_observation + 3.0)
    back = batch._replace(observation=batch.observation + 3.0)
    paid = [float(reward_of(reward, state, steps).mean()) for steps in (batch, out, back)]
    assert paid[1] > 20 * paid[0]
    assert paid[2] == 0.0


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"feature_dim": 0}, "feature_dim is 0; choose at least 1."),
        ({"target_sizes": (0,)}, r"target_sizes is \(0,\); choose positive widths."),
        ({"novelty_decay": 1.5}, "novelty_decay is 1.5; choose from 0 to 1."),
        ({"observation_clip": 0.0}, "observation_clip is 0.0; choose above 0."),
        ({"cell_width": -1.0}, "cell_width is -1.0; choose above 0."),
    ],
)
def test_bad_settings_are_refused(setting: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^NoveldConfig.{sentence}$"):
        NoveldConfig(**setting)


def test_official_settings_and_interface() -> None:
    config = NoveldConfig()
    assert (config.novelty_decay, config.feature_dim, config.learning_rate) == (0.5, 128, 1e-4)
    assert config.target_sizes == (128, 128, 128)
    assert config.predictor_sizes == (1024, 1024, 128, 128)
    assert config.max_gradient_norm == 40.0
    assert isinstance(NoveldReward(), Reward)
