"""RE3's numbers by hand and by a plain loop over the transitions drawn."""

import math

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

from element_rl.replay.ring import Episode, Transitions
from element_rl.rewards.interface import Reward, RewardSpec
from element_rl.rewards.re3 import Re3Config, Re3Reward

SPEC = RewardSpec(
    observation_dim=3, action_dim=2, state_dim=2, max_episode_steps=8, total_steps=100
)
# compiled once per setting and shape, not operation by operation
INIT = jax.jit(Re3Reward.init, static_argnums=(0, 2))
UPDATE = jax.jit(Re3Reward.update, static_argnums=0)
REWARD = jax.jit(Re3Reward.reward, static_argnums=0)


def re3(**options) -> Re3Reward:
    return Re3Reward(Re3Config(**({"pool_size": 16} | options)))


def kth(vectors: np.ndarray, pool: np.ndarray, k: int) -> np.ndarray:
    """Distance of each vector to the k-th nearest in a pool that holds it once."""
    distances = np.linalg.norm(vectors[:, None].astype(float) - pool[None], axis=-1)
    return np.sort(distances, axis=1)[:, k]


def test_by_hand() -> None:
    """On a line 0, 1, 3, 7: the third neighbours are 7, 6, 4 and 7 away."""
    reward = re3()
    batch = batch_of_states([[0, 0], [1, 0], [3, 0], [7, 0]])
    state, metrics = UPDATE(reward, INIT(reward, KEY, SPEC), batch, KEY)
    assert metrics == {}
    np.testing.assert_allclose(REWARD(reward, state, batch), np.log([8, 7, 5, 8]), rtol=1e-6)
    second = batch_of_states([[0, 4], [0, 0]])  # now five in the pool, one of them drawn again
    state, _ = UPDATE(reward, state, second, KEY)
    np.testing.assert_allclose(
        REWARD(reward, state, second), [math.log(1 + 5), math.log(1 + 4)], rtol=1e-6
    )
    terms = jax.jit(reward.reward_terms)(state, second)
    assert list(terms) == ["reward_lifelong"]
    np.testing.assert_allclose(terms["reward_lifelong"], REWARD(reward, state, second), rtol=1e-6)


def test_against_a_plain_loop_over_updates_with_the_codes_running_deviation() -> None:
    """Distances of every batch against the last 16 states, over the deviation of all distances so
    far."""
    paper, code = re3(), re3(form="code")
    paper_state, code_state = INIT(paper, KEY, SPEC), INIT(code, KEY, SPEC)
    pool, distances_so_far = np.zeros((0, 2)), []
    for batch in random_batches_of_states(6, size=6):
        pool = np.concatenate([pool, np.asarray(batch.state)])[-16:]
        distance = kth(np.asarray(batch.state), pool, 3)
        distances_so_far += distance.tolist()
        paper_state, _ = UPDATE(paper, paper_state, batch, KEY)
        code_state, _ = UPDATE(code, code_state, batch, KEY)
        np.testing.assert_allclose(
            REWARD(paper, paper_state, batch), np.log(distance + 1), rtol=1e-5
        )
        np.testing.assert_allclose(
            REWARD(code, code_state, batch), distance / np.std(distances_so_far), rtol=1e-5
        )
    assert float(code_state.distance_moments.number) == 36


def test_observation_space_encodes_the_next_observation() -> None:
    """A plain NumPy copy of the encoder: two ReLU layers, 50 outputs, standardised, tanh."""
    reward = re3(space="observation")
    state = INIT(reward, KEY, SPEC)
    (batch,) = random_batches_of_states(1, size=8)
    hidden = np.asarray(batch.next_observation, float)
    for layer, (weight, bias) in enumerate(
        zip(state.encoder.weights, state.encoder.biases, strict=True)
    ):
        hidden = hidden @ np.asarray(weight, float) + np.asarray(bias)
        hidden = np.maximum(hidden, 0) if layer < 2 else hidden
    standard = (hidden - hidden.mean(axis=1, keepdims=True)) / np.sqrt(
        hidden.var(axis=1, keepdims=True) + 1e-5
    )
    encoded = np.tanh(standard)
    assert encoded.shape == (8, 50)
    state, _ = UPDATE(reward, state, batch, KEY)
    np.testing.assert_allclose(
        REWARD(reward, state, batch), np.log1p(kth(encoded, encoded, 3)), rtol=1e-4
    )
    np.testing.assert_array_equal(
        state.encoder.weights[0], INIT(reward, KEY, SPEC).encoder.weights[0]
    )


@pytest.mark.parametrize("space", ["state", "observation"])
def test_only_the_next_observation_counts(space: str) -> None:
    reward = re3(space=space)
    batches = random_batches_of_states(2, size=6)
    moved = [b._replace(observation=b.observation + 5, terminated=~b.terminated) for b in batches]

    def rewards(batches: list[Transitions]) -> np.ndarray:
        state = INIT(reward, KEY, SPEC)
        for batch in batches:
            state, _ = UPDATE(reward, state, batch, KEY)
        return np.asarray(REWARD(reward, state, batches[-1]))

    np.testing.assert_allclose(rewards(moved), rewards(batches), rtol=1e-6)
    further = [
        b._replace(state=3 * b.state, next_observation=3 * b.next_observation) for b in batches
    ]
    assert not np.allclose(rewards(further), rewards(batches), rtol=1e-2)


def test_observe_changes_nothing() -> None:
    reward = re3()
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


@pytest.mark.parametrize(
    ("form", "space"), [("paper", "state"), ("code", "state"), ("code", "observation")]
)
def test_empty_single_and_constant_inputs_are_finite(form: str, space: str) -> None:
    reward = re3(form=form, space=space)
    state = INIT(reward, KEY, SPEC)
    constant = batch_of_states(np.ones((4, 2)), np.ones((4, 3)))
    assert REWARD(reward, state, constant).tolist() == [0, 0, 0, 0], "the pool is empty"
    state, _ = UPDATE(reward, state, batch_of_states(np.ones((1, 2)), np.ones((1, 3))), KEY)
    state, _ = UPDATE(reward, state, constant, KEY)
    assert REWARD(reward, state, constant).tolist() == [0, 0, 0, 0], "one state, drawn five times"
    other = batch_of_states(np.zeros((1, 2)), np.zeros((1, 3)))
    assert np.isfinite(REWARD(reward, state, other)).all()
    assert (np.asarray(REWARD(reward, state, other)) > 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_neighbours": 0}, "Re3Config.num_neighbours is 0; choose at least 1"),
        ({"num_neighbours": 16}, "choose at least 1 and fewer than the pool's 16"),
        ({"form": "log"}, "Re3Config.form is 'log'; choose paper or code"),
        ({"space": "pixels"}, "Re3Config.space is 'pixels'; choose state or observation"),
        ({"feature_dim": 0}, "feature_dim is 0; choose at least 1"),
        ({"hidden_sizes": (64, 0)}, "choose positive widths"),
    ],
)
def test_bad_settings_are_refused(
    options: dict, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # users run without type checks
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match=message):
        re3(**options)


def test_official_settings() -> None:
    config = Re3Config()
    assert (config.num_neighbours, config.feature_dim, config.form) == (3, 50, "paper")
