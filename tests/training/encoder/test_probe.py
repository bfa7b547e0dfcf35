"""The probe finds what is there to be found, on frames it has not seen, and nothing more."""

import numpy as np
import pytest

from element_rl.training.encoder.probe import Labelled, linear_probe, pixel_components, r_squared


def three_parts(states: np.ndarray, positions: np.ndarray) -> list[Labelled]:
    parts = zip(np.split(states, [300, 400]), np.split(positions, [300, 400]), strict=True)
    return [Labelled(own.astype(np.float32), place.astype(np.float32)) for own, place in parts]


def test_r_squared_by_hand() -> None:
    positions = np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0]], np.float32)
    predictions = np.array([[0.0, 0.0], [3.0, 0.0], [4.0, 0.0]])
    scores = r_squared(positions, predictions)
    assert scores[0] == pytest.approx(1 - 1 / 8)
    assert np.isnan(scores[1])  # it never changes: there is nothing to predict
    assert r_squared(positions[:, :1], np.full((3, 1), 2.0))[0] == 0


def test_positions_that_are_linear_in_the_states_are_found() -> None:
    generator = np.random.default_rng(0)
    # one column is constant
    states = generator.standard_normal((500, 6)) * [1, 100, 0.01, 1, 1, 0] + 5
    positions = states @ generator.standard_normal((6, 2)) * 30 + [700, -3]
    probe = linear_probe(*three_parts(states, positions))
    np.testing.assert_allclose(probe.scores, 1, atol=1e-3)
    np.testing.assert_allclose(probe.predictions, positions[400:], atol=0.02 * positions.std())


def test_noise_is_not_mistaken_for_knowledge() -> None:
    """250 useless columns for 300 frames: without a penalty the probe would learn them by heart."""
    generator = np.random.default_rng(1)
    states, positions = generator.standard_normal((700, 250)), generator.standard_normal((700, 2))
    probe = linear_probe(*three_parts(states, positions))
    assert probe.penalty == 1.0
    assert np.all(np.abs(probe.scores) < 0.6)
    informed = np.concatenate(
        [states, positions[:, :1] + 0.1 * generator.standard_normal((700, 1))], axis=1
    )
    knows = linear_probe(*three_parts(informed, positions))
    assert knows.scores[0] > 0.5 > knows.scores[1]


def test_pixel_components_are_the_principal_ones() -> None:
    generator = np.random.default_rng(2)
    directions = generator.standard_normal((3, 8, 8))
    frames = (
        np.einsum("nk,khw->nhw", generator.standard_normal((60, 3)) * [30, 20, 10], directions)
        + 128
    )
    frames = np.clip(frames, 0, 255).astype(np.uint8)
    components = pixel_components(frames, 2)
    flat = frames.reshape(60, -1) / 255
    _, sizes, _ = np.linalg.svd(flat - flat.mean(axis=0), full_matrices=False)
    projected = components(frames)
    assert projected.shape == (60, 2)
    np.testing.assert_allclose(np.linalg.norm(projected, axis=0), sizes[:2], rtol=1e-3)
