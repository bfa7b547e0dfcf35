"""Calibrated states: their units are those of a warm-up, whatever the environment's own are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.encoders.state import StateEncoder, WarmUp, make_state_encoder


def warm_up(scale: float = 1.0, shift: float = 0.0, seed: int = 0) -> WarmUp:
    """Two episodes of 60 rows: four observed columns, of which two are the orientation, and a
    position."""
    generator = np.random.default_rng(seed)
    observation = (scale * generator.normal(size=(120, 4)) + shift).astype(np.float32)
    position = (scale * generator.normal(size=(120, 2))).astype(np.float32)
    return WarmUp(observation, position, np.repeat([0, 1], 60))


def states_of(encoder: StateEncoder, rows: WarmUp) -> np.ndarray:
    encode = jax.jit(jax.vmap(encoder))
    return np.asarray(encode(jnp.asarray(rows.observation), jnp.asarray(rows.position)))


def mean_squared_distances(states: np.ndarray, rows: WarmUp) -> float:
    """Over all pairs of rows of one episode, each with itself too."""
    pairs = []
    for number in np.unique(rows.episode):
        own = states[rows.episode == number].astype(np.float64)
        pairs.append(((own[:, None] - own[None]) ** 2).sum(axis=-1).mean())
    return float(np.mean(pairs))


def test_by_hand() -> None:
    """One column that is −1 and 1, a position that is 0 and 6, no orientation."""
    rows = WarmUp(np.array([[-1.0], [1.0]]), np.array([[0.0], [6.0]]), np.zeros(2, np.int64))
    encoder = make_state_encoder(3, observation_dim=1, warm_up=rows)
    assert encoder.units is not None
    np.testing.assert_allclose(encoder.units.mean, [0.0])
    np.testing.assert_allclose(encoder.units.deviation, [1.0])
    # 2 · variance 9 = 18 is the mean squared distance of positions, and two blocks vary.
    np.testing.assert_allclose(encoder.units.blocks[1], np.sqrt(2 * 18), rtol=1e-6)
    ends = [encoder.embed(jnp.asarray([end])) for end in (-np.arcsinh(1.0), np.arcsinh(1.0))]
    squared = float(jnp.sum((ends[0] - ends[1]) ** 2)) / 2  # two of the four pairs are the same row
    np.testing.assert_allclose(encoder.units.blocks[0], np.sqrt(2 * squared), rtol=1e-5)
    np.testing.assert_allclose(encoder.units.blocks[2], 1.0)  # of nothing
    state = encoder(jnp.asarray([1.0]), jnp.asarray([6.0]))
    np.testing.assert_allclose(state[:5], ends[1] / encoder.units.blocks[0], rtol=1e-5)
    np.testing.assert_allclose(state[5], 1.0, rtol=1e-6)


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (247.0, 30.0), (0.003, -0.5)])
def test_two_states_of_the_warm_up_have_a_mean_squared_distance_of_one(
    scale: float, shift: float
) -> None:
    """In any units, with a third from each block."""
    rows = warm_up(scale, shift)
    encoder = make_state_encoder(7, 4, orientation=(1, 3), warm_up=rows)
    states = states_of(encoder, rows)
    assert states.shape == (120, 5 + 2 + 2)
    np.testing.assert_allclose(mean_squared_distances(states, rows), 1.0, rtol=1e-3)
    for block in (states[:, :5], states[:, 5:7], states[:, 7:]):
        np.testing.assert_allclose(mean_squared_distances(block, rows), 1 / 3, rtol=1e-3)


def test_other_units_are_the_same_states() -> None:
    """Metres or millimetres: distances of states are equal."""
    metres = warm_up()
    millimetres = WarmUp(1_000 * metres.observation, 1_000 * metres.position, metres.episode)
    of_each = [
        states_of(make_state_encoder(7, 4, orientation=(1, 3), warm_up=rows), rows)
        for rows in (metres, millimetres)
    ]
    np.testing.assert_allclose(*of_each, rtol=1e-3, atol=1e-4)


def test_what_never_moved_stays_finite() -> None:
    """A column that is constant, one that is constant but for rounding, a position that is
    always the same."""
    rows = warm_up()
    rows.observation[:, 0] = 5.0
    rows.observation[:, 3] = 1e4 + 1e-3 * np.sign(rows.observation[:, 3])
    rows.position[:] = 2.0
    encoder = make_state_encoder(7, 4, orientation=(1, 3), warm_up=rows)
    assert encoder.units is not None
    np.testing.assert_array_equal(encoder.units.deviation[np.array([0, 3])], [1.0, 1.0])
    np.testing.assert_array_equal(encoder.units.blocks[1], 1.0)
    states = states_of(encoder, rows)
    assert np.isfinite(states).all()
    # embedding and orientation share what three blocks would
    np.testing.assert_allclose(mean_squared_distances(states, rows), 1.0, rtol=1e-3)


def test_far_from_the_warm_up_states_still_differ() -> None:
    """A hundred deviations away, where no random action led, and twice as far."""
    rows = warm_up()
    encoder = make_state_encoder(7, 4, warm_up=rows)
    near, far = (encoder(jnp.full(4, x), jnp.zeros(2))[:5] for x in (100.0, 200.0))
    distance = float(jnp.linalg.norm(near - far))
    assert 0.1 < distance < 10.0


def test_without_a_warm_up_states_are_raw() -> None:
    raw = make_state_encoder(7, 4, orientation=(1, 3))
    assert raw.units is None
    observation = jnp.asarray([1.0, 2.0, 3.0, 4.0])
    state = raw(observation, jnp.asarray([9.0, 8.0]))
    np.testing.assert_array_equal(state[5:], [9.0, 8.0, 2.0, 3.0])
