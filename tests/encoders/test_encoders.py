"""The random encoder is one encoder per seed, for ever; the state of a robot is what the paper
says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.encoders.state import make_random_mlp, make_state_encoder


def test_golden_weights_and_embedding() -> None:
    """Computed once from NumPy's frozen stream; the weights bit for bit, the embedding to
    rounding."""
    encoder = make_random_mlp(seed=0, observation_dim=27)
    assert [w.shape for w in encoder.weights] == [(64, 27), (64, 64), (5, 64)]
    first = np.random.RandomState(0).uniform(-(27**-0.5), 27**-0.5, (64, 27)).astype(np.float32)
    np.testing.assert_array_equal(encoder.weights[0], first)
    assert float(encoder.weights[0][0, 0]) == np.float32(0.018788327)
    hidden = np.linspace(-1, 1, 27)
    for index, (weight, bias) in enumerate(zip(encoder.weights, encoder.biases, strict=True)):
        hidden = np.asarray(weight, np.float64) @ hidden + np.asarray(bias, np.float64)
        hidden = hidden if index == 2 else np.maximum(hidden, 0)
    np.testing.assert_allclose(encoder(jnp.linspace(-1, 1, 27)), hidden, rtol=1e-5, atol=1e-6)


def test_bounds_follow_the_width() -> None:
    encoder = make_random_mlp(seed=3, observation_dim=100)
    for weight, bias in zip(encoder.weights, encoder.biases, strict=True):
        bound = weight.shape[1] ** -0.5
        for array in (weight, bias):
            assert np.abs(array).max() <= bound
        assert np.abs(weight).max() > 0.95 * bound


def test_seeds_differ_and_repeat() -> None:
    observation = jnp.ones(11)
    same = [make_random_mlp(4, 11)(observation) for _ in range(2)]
    np.testing.assert_array_equal(*same)
    assert not np.allclose(same[0], make_random_mlp(5, 11)(observation))


def test_state_is_embedding_position_orientation() -> None:
    encoder = make_state_encoder(seed=1, observation_dim=27, orientation=(1, 5))
    observation = jnp.arange(27.0) / 10
    state = encoder(observation, jnp.array([7.0, -8.0]))
    assert state.shape == (11,)
    np.testing.assert_array_equal(state[:5], encoder.embed(observation))
    np.testing.assert_array_equal(state[5:7], [7.0, -8.0])
    np.testing.assert_array_equal(state[7:], observation[1:5])


def test_state_without_position_or_orientation() -> None:
    encoder = make_state_encoder(seed=1, observation_dim=4)
    assert encoder(jnp.ones(4), jnp.zeros(0)).shape == (5,)
    with pytest.raises(
        ValueError, match="orientation columns 2 to 6 are not within an observation of width 4"
    ):
        make_state_encoder(seed=1, observation_dim=4, orientation=(2, 6))


def test_population_of_encoders() -> None:
    """Stacked encoders, one per agent, vmapped."""
    encoders = [make_state_encoder(seed, 8, (0, 2)) for seed in range(3)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *encoders)
    observations, positions = jnp.ones((3, 8)), jnp.zeros((3, 2))
    states = jax.vmap(lambda encoder, o, p: encoder(o, p))(stacked, observations, positions)
    for agent in range(3):
        np.testing.assert_allclose(
            states[agent],
            encoders[agent](observations[agent], positions[agent]),
            rtol=1e-5,
            atol=1e-6,
        )
