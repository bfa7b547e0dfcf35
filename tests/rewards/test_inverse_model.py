"""The inverse model's loss by hand and in NumPy, and what it learns to keep and to leave out."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from element_rl.mlp import MLP
from element_rl.rewards.inverse_model import InverseModel, inverse_loss


def small_model(seed: int = 0) -> InverseModel:
    return InverseModel.create(jax.random.key(seed), 4, 2, 3, (8,), (8, 8))


def numpy_mlp(network: MLP, inputs: np.ndarray) -> np.ndarray:
    hidden = np.asarray(inputs, np.float64)
    for weight, bias in zip(network.weights[:-1], network.biases[:-1], strict=True):
        hidden = np.maximum(hidden @ np.asarray(weight, np.float64) + np.asarray(bias), 0.0)
    return hidden @ np.asarray(network.weights[-1], np.float64) + np.asarray(network.biases[-1])


def transitions(seed: int, size: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The action moves the first two entries; the other two are noise it has no hand in."""
    rng = np.random.default_rng(seed)
    observation = rng.normal(size=(size, 4)).astype(np.float32)
    action = rng.uniform(-0.9, 0.9, size=(size, 2)).astype(np.float32)
    moved = np.concatenate(
        [observation[:, :2] + action, rng.normal(size=(size, 2))], axis=1
    ).astype(np.float32)
    return jnp.asarray(observation), jnp.asarray(moved), jnp.asarray(action)


def test_loss_by_hand() -> None:
    """φ(s) = 2s and the head takes φ(s') − φ(s): from 1 to 1.25 it tells tanh(0.5), from 0 to 0 it
    tells 0."""
    encoder = MLP((jnp.array([[2.0]]),), (jnp.zeros(1),))
    head = MLP((jnp.array([[-1.0], [1.0]]),), (jnp.zeros(1),))
    model = InverseModel(encoder, head)
    now, after, action = (
        jnp.array([[1.0], [0.0]]),
        jnp.array([[1.25], [0.0]]),
        jnp.array([[0.0], [0.6]]),
    )
    np.testing.assert_allclose(model.features(now), [[2.0], [0.0]])
    np.testing.assert_allclose(model(now, after), [[np.tanh(0.5)], [0.0]], rtol=1e-6)
    np.testing.assert_allclose(model(after, now), [[-np.tanh(0.5)], [0.0]], rtol=1e-6)
    np.testing.assert_allclose(
        inverse_loss(model, now, after, action), (np.tanh(0.5) ** 2 + 0.36) / 2, rtol=1e-6
    )


def test_loss_against_numpy() -> None:
    model = small_model()
    observation, after, action = transitions(0, 9)
    both = np.concatenate(
        [numpy_mlp(model.encoder, observation), numpy_mlp(model.encoder, after)], axis=1
    )
    told = np.tanh(numpy_mlp(model.head, both))
    assert told.shape == (9, 2)
    np.testing.assert_allclose(model(observation, after), told, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        jax.jit(inverse_loss)(model, observation, after, action),
        ((told - np.asarray(action)) ** 2).sum() / 18,
        rtol=1e-5,
    )


def test_sizes() -> None:
    model = InverseModel.create(jax.random.key(0), 4, 2, 3, (8,), (7, 6))
    assert [weight.shape for weight in model.encoder.weights] == [(4, 8), (8, 3)]
    assert [weight.shape for weight in model.head.weights] == [(6, 7), (7, 6), (6, 2)]
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(model))


def test_learns_what_the_action_moves() -> None:
    """Trained on fresh batches it tells the actions of others, and its features forget what the
    action does not touch."""
    model = InverseModel.create(jax.random.key(0), 4, 2, 3, (32,), (32,))
    observation, after, action = transitions(1, 256)
    before = inverse_loss(model, observation, after, action)
    batches = [
        jnp.stack(part)
        for part in zip(*(transitions(seed, 128) for seed in range(2, 52)), strict=True)
    ]
    optimiser = optax.adam(3e-3)

    def step(carry: tuple, batch: tuple) -> tuple:
        model, state = carry
        updates, state = optimiser.update(jax.grad(inverse_loss)(model, *batch), state)
        return (optax.apply_updates(model, updates), state), None

    @jax.jit
    def epoch(carry: tuple) -> tuple:
        return jax.lax.scan(step, carry, tuple(batches))[0]

    carry = (model, optimiser.init(model))
    for _ in range(20):
        carry = epoch(carry)
    model = carry[0]
    assert inverse_loss(model, observation, after, action) < 0.15 * before

    def feature_change(entry: int) -> float:
        shifted = observation.at[:, entry].add(1.0)
        return float(jnp.mean((model.features(shifted) - model.features(observation)) ** 2))

    assert min(feature_change(0), feature_change(1)) > 10 * max(
        feature_change(2), feature_change(3)
    )


def test_population_equals_agents_alone() -> None:
    models = [small_model(seed) for seed in range(3)]
    data = [transitions(seed, 5) for seed in range(3)]
    population, batches = (
        jax.tree.map(lambda *leaves: jnp.stack(leaves), *kind) for kind in (models, data)
    )
    loss_and_gradient = jax.value_and_grad(inverse_loss)
    losses, gradients = jax.jit(jax.vmap(loss_and_gradient))(population, *batches)
    alone = jax.jit(loss_and_gradient)
    for agent in range(3):
        loss, gradient = alone(models[agent], *data[agent])
        np.testing.assert_allclose(losses[agent], loss, rtol=1e-5)
        for ours, theirs in zip(jax.tree.leaves(gradients), jax.tree.leaves(gradient), strict=True):
            np.testing.assert_allclose(ours[agent], theirs, rtol=1e-5, atol=1e-6)
