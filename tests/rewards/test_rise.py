"""RISE's numbers by hand and by a plain loop over the transitions drawn."""

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from support.by_hand import (
    KEY,
    batch_of_states,
    random_batches_of_states,
)

from element_rl.replay.ring import Episode
from element_rl.rewards.interface import Reward, RewardSpec
from element_rl.rewards.rise import RiseConfig, RiseReward

SPEC = RewardSpec(
    observation_dim=3, action_dim=2, state_dim=2, max_episode_steps=8, total_steps=100
)
# compiled once per setting and shape, not operation by operation
INIT = jax.jit(RiseReward.init, static_argnums=(0, 2))
UPDATE = jax.jit(RiseReward.update, static_argnums=0)
REWARD = jax.jit(RiseReward.reward, static_argnums=0)


def rise(**options) -> RiseReward:
    return RiseReward(RiseConfig(**({"pool_size": 20} | options)))


def test_by_hand() -> None:
    """On a line 0, 1, 4: the second neighbours are 4, 3 and 4 away; with α = ½ the rewards are
    their roots."""
    reward = rise(num_neighbours=2, order=0.5)
    batch = batch_of_states([[0, 0], [1, 0], [4, 0]])
    state, metrics = UPDATE(reward, INIT(reward, KEY, SPEC), batch, KEY)
    assert metrics == {}
    np.testing.assert_allclose(REWARD(reward, state, batch), [2, 3**0.5, 2], rtol=1e-6)
    terms = jax.jit(reward.reward_terms)(state, batch)
    assert list(terms) == ["reward_lifelong"]
    np.testing.assert_allclose(terms["reward_lifelong"], REWARD(reward, state, batch), rtol=1e-6)


@pytest.mark.parametrize("space", ["state", "observation"])
def test_against_a_plain_loop(space: str) -> None:
    """The fifth nearest of the last 20 vectors, to the power 0.9; no normalisation over time."""
    reward = rise(space=space)
    state = INIT(reward, KEY, SPEC)
    drawn: list[np.ndarray] = []
    for batch in random_batches_of_states(5):
        vectors = np.asarray(batch.state if space == "state" else batch.next_observation, float)
        drawn = [*drawn, *vectors][-20:]
        state, _ = UPDATE(reward, state, batch, KEY)
        expected = [
            sorted(np.linalg.norm(vector - other) for other in drawn)[5] ** 0.9
            for vector in vectors
        ]
        np.testing.assert_allclose(REWARD(reward, state, batch), expected, rtol=1e-5)


def test_only_the_next_observation_counts() -> None:
    reward = rise(space="observation")
    (batch,) = random_batches_of_states(1)
    moved = batch._replace(observation=batch.observation + 5, terminated=~batch.terminated)
    state, _ = UPDATE(reward, INIT(reward, KEY, SPEC), batch, KEY)
    moved_state, _ = UPDATE(reward, INIT(reward, KEY, SPEC), moved, KEY)
    np.testing.assert_array_equal(REWARD(reward, moved_state, moved), REWARD(reward, state, batch))


def test_a_second_draw_changes_no_reward() -> None:
    reward = rise()
    (batch,) = random_batches_of_states(1)
    state, _ = UPDATE(reward, INIT(reward, KEY, SPEC), batch, KEY)
    again, _ = UPDATE(reward, state, batch, KEY)
    np.testing.assert_array_equal(REWARD(reward, again, batch), REWARD(reward, state, batch))


def test_observe_changes_nothing() -> None:
    reward = rise()
    rows = jnp.ones(8)
    episode = Episode(
        jnp.ones((8, 3)),
        jnp.ones((8, 2)),
        jnp.ones((8, 3)),
        rows,
        rows > 0,
        jnp.ones((8, 2)),
        rows > 0,
        jnp.arange(8),
    )
    state = INIT(reward, KEY, SPEC)
    after, notes = reward.observe(state, episode)
    assert after is state
    assert notes == {}
    assert reward.note_shapes() == {}
    assert reward.metric_names == ()
    assert isinstance(reward, Reward)


def test_empty_single_and_constant_inputs_are_finite() -> None:
    reward = rise()
    state = INIT(reward, KEY, SPEC)
    constant = batch_of_states(np.ones((4, 2)))
    assert REWARD(reward, state, constant).tolist() == [0, 0, 0, 0], "the pool is empty"
    state, _ = UPDATE(reward, state, constant, KEY)
    assert REWARD(reward, state, constant).tolist() == [0, 0, 0, 0], "one state, drawn four times"
    np.testing.assert_allclose(
        REWARD(reward, state, batch_of_states([[4.0, 5.0]])), [5**0.9], rtol=1e-6
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": 1.0}, "RiseConfig.order is 1.0; choose above 0 and below 1"),
        ({"order": 0.0}, "RiseConfig.order is 0.0; choose above 0 and below 1"),
        ({"num_neighbours": 0}, "RiseConfig.num_neighbours is 0; choose at least 1"),
        ({"num_neighbours": 20}, "choose at least 1 and fewer than the pool's 20"),
        ({"space": "pixels"}, "RiseConfig.space is 'pixels'; choose state or observation"),
    ],
)
def test_bad_settings_are_refused(
    options: dict, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # users run without type checks
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match=message):
        rise(**options)


def test_official_settings() -> None:
    config = RiseConfig()
    assert (config.order, config.num_neighbours) == (0.1, 5)
