"""Networks: initialisation, the twin axis, and the density of the squashed Gaussian against float64
NumPy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.agents.networks import (
    MLP,
    Actor,
    TwinCritics,
    divergence,
    lower_value,
    network_from,
    policy_parameters,
    squashed_gaussian,
)


def test_layers_start_uniform_within_one_over_root_fan_in() -> None:
    network = MLP.create(jax.random.key(0), (64, 400, 300))
    for fan_in, weight, bias in zip((64, 400), network.weights, network.biases, strict=True):
        for values in (weight, bias):
            bound = fan_in**-0.5
            assert np.abs(values).max() <= bound
            assert np.abs(values).max() > 0.97 * bound
            assert np.std(values) == pytest.approx(bound / np.sqrt(3), rel=0.1)


def test_mlp_is_relu_layers_with_a_linear_last_one() -> None:
    network = MLP.create(jax.random.key(1), (3, 8, 8, 2))
    inputs = np.random.default_rng(0).normal(size=(5, 3))
    hidden = inputs
    for i in range(3):
        hidden = hidden @ np.asarray(network.weights[i], np.float64) + np.asarray(
            network.biases[i], np.float64
        )
        hidden = np.maximum(hidden, 0.0) if i < 2 else hidden
    np.testing.assert_allclose(
        network(jnp.asarray(inputs, jnp.float32)), hidden, rtol=1e-5, atol=1e-6
    )


def test_twin_critics_are_two_different_networks_of_observation_and_action() -> None:
    critics = TwinCritics.create(jax.random.key(2), 3, 2, (16, 16))
    observation, action = jnp.ones((4, 3)), jnp.full((4, 2), 0.5)
    q = critics(observation, action)
    assert q.shape == (2, 4)
    for i in range(2):
        one_of_them = jax.tree.map(lambda leaf, i=i: leaf[i], critics.networks)
        expected = one_of_them(jnp.concatenate([observation, action], axis=-1))[:, 0]
        np.testing.assert_allclose(q[i], expected, rtol=1e-5, atol=1e-6)
    assert np.abs(q[0] - q[1]).min() > 1e-3


def test_log_standard_deviation_is_clipped() -> None:
    actor = Actor.create(jax.random.key(3), 3, 2, (8,))
    bias = jnp.asarray([0.0, 0.0, 1e3, -1e3])
    actor = eqx.tree_at(lambda tree: tree.network.biases[-1], actor, bias)
    _, log_std = actor(jnp.zeros((1, 3)))
    np.testing.assert_array_equal(log_std, [[2.0, -20.0]])


def test_log_probability_is_the_change_of_variables() -> None:
    rng = np.random.default_rng(0)
    mean, log_std, noise = (
        rng.normal(size=(50, 4)),
        rng.uniform(-3, 1, size=(50, 4)),
        rng.normal(size=(50, 4)),
    )
    action, log_probability = squashed_gaussian(
        *(jnp.asarray(x, jnp.float32) for x in (mean, log_std, noise))
    )

    before_tanh = mean + np.exp(log_std) * noise
    gaussian = np.exp(-0.5 * ((before_tanh - mean) / np.exp(log_std)) ** 2) / (
        np.sqrt(2 * np.pi) * np.exp(log_std)
    )
    expected = np.sum(np.log(gaussian) - np.log1p(-(np.tanh(before_tanh) ** 2)), axis=-1)
    np.testing.assert_allclose(action, np.tanh(before_tanh), atol=1e-6)
    np.testing.assert_allclose(log_probability, expected, rtol=1e-5, atol=1e-5)


def test_density_integrates_to_one_over_the_actions() -> None:
    """Independent of the formula: the density at a, summed over a grid of a in (-1, 1), is 1."""
    action = np.linspace(-1, 1, 20_001)[1:-1]
    mean, std = 0.4, 0.7
    noise = (np.arctanh(action) - mean) / std
    shape = (action.size, 1)
    _, log_probability = squashed_gaussian(
        jnp.full(shape, mean),
        jnp.full(shape, np.log(std)),
        jnp.asarray(noise, jnp.float32)[:, None],
    )
    assert np.trapezoid(np.exp(log_probability), action) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("mean", [-80.0, -20.0, 20.0, 80.0])
def test_log_probability_and_gradient_stay_right_where_tanh_saturates(mean: float) -> None:
    def log_probability(mean: jax.Array) -> jax.Array:
        return squashed_gaussian(mean, jnp.zeros((1, 1)), jnp.zeros((1, 1)))[1][0]

    value, gradient = jax.value_and_grad(log_probability)(jnp.full((1, 1), mean))
    # For large |u|: log(1 - tanh²u) → 2 log 2 - 2|u|.
    assert value == pytest.approx(
        -0.5 * np.log(2 * np.pi) - 2 * np.log(2) + 2 * abs(mean), rel=1e-6
    )
    assert float(gradient[0, 0]) == pytest.approx(2.0 * np.sign(mean), rel=1e-6)


def test_policy_parameters_of_a_population_keep_the_leading_axis() -> None:
    create = jax.jit(jax.vmap(lambda key: Actor.create(key, 3, 2, (8, 8))))
    actors = create(jax.random.split(jax.random.key(4), 5))
    parameters = policy_parameters(actors)
    assert {name: array.shape for name, array in parameters.items()} == {
        "weight_0": (5, 3, 8),
        "weight_1": (5, 8, 8),
        "weight_2": (5, 8, 4),
        "bias_0": (5, 8),
        "bias_1": (5, 8),
        "bias_2": (5, 4),
    }


def constant_actor(mean: list[float], std: list[float]) -> Actor:
    return Actor(
        MLP((jnp.zeros((1, 2 * len(mean))),), (jnp.asarray([*mean, *np.log(std)], jnp.float32),))
    )


def test_divergence_by_hand() -> None:
    """KL of Gaussians: log σ_0/σ + (σ² + (μ - μ_0)²) / 2σ_0² - ½, here 2/4 for a step of one
    deviation and log 2 - 3/8."""
    observation = jnp.zeros((3, 1))
    here, there = constant_actor([2.0, 0.0], [2.0, 1.0]), constant_actor([0.0, 0.0], [2.0, 2.0])
    np.testing.assert_allclose(
        divergence(here, there, observation), [0.5 + np.log(2) - 3 / 8] * 3, rtol=1e-6
    )
    np.testing.assert_allclose(divergence(here, here, observation), 0.0, atol=1e-7)


def test_an_actor_comes_back_from_its_parameters() -> None:
    actor = Actor.create(jax.random.key(3), 3, 2, (8, 4))
    back = Actor(
        network_from({name: np.asarray(array) for name, array in policy_parameters(actor).items()})
    )
    assert jax.tree.structure(back) == jax.tree.structure(actor)
    for new, old in zip(jax.tree.leaves(back), jax.tree.leaves(actor), strict=True):
        np.testing.assert_array_equal(new, old)


def test_the_gradient_of_the_lower_value_goes_to_the_lower_and_divides_by_nothing() -> None:
    """`jnp.min` divides by how many entries equal the minimum, which a compiler that computes them
    twice may find to be none: 0 / 0."""
    values = jnp.array([[1.0, 5.0, -2.0], [3.0, 4.0, -7.0]])
    np.testing.assert_array_equal(lower_value(values), [1.0, 4.0, -7.0])

    def weighted(values: jax.Array) -> jax.Array:
        return jnp.sum(jnp.array([1.0, 10.0, 100.0]) * lower_value(values))

    np.testing.assert_array_equal(jax.grad(weighted)(values), [[1, 0, 0], [0, 10, 100]])
    assert " div " not in str(jax.make_jaxpr(jax.grad(weighted))(values))
