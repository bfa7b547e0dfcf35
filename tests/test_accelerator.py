"""What must hold on an accelerator: distances and entropies without TF32's rounding, and a whole
run. Run them there with `make test-gpu`; elsewhere they are skipped.

Matrix units of GPUs multiply with ten bits unless told otherwise, and ‖x‖² + ‖y‖² − 2 x·y cancels:
each number here is compared with float64 on the host.
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from element_rl.cli import main
from element_rl.entropy import kde_entropy, knn_entropy, renyi_entropy, renyi_shares
from element_rl.memory import make_memory
from element_rl.memory.exact import merge_distances

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(jax.default_backend() == "cpu", reason="needs an accelerator"),
]


@pytest.fixture(scope="module")
def states() -> np.ndarray:
    """Far from the origin and near each other, where cancelling shows."""
    return (100 + np.random.default_rng(0).normal(size=(3000, 11))).astype(np.float32)


def float64_distances(states: np.ndarray, others: np.ndarray) -> np.ndarray:
    difference = states[:, None].astype(np.float64) - others[None].astype(np.float64)
    return np.sqrt(np.sum(difference**2, axis=-1))


def test_exact_distances(states: np.ndarray) -> None:
    memory = make_memory("exact", 11)
    memory.insert(states[200:])
    distances, _ = memory.query(states[:200], 3)
    expected = np.sort(float64_distances(states[:200], states[200:]), axis=1)[:, :3]
    np.testing.assert_allclose(distances, expected, rtol=1e-5)


def test_merged_notes_are_a_fresh_query(states: np.ndarray) -> None:
    notes = jnp.full((200, 3), jnp.inf)
    for part in np.split(states[200:], 4):
        notes = jax.jit(merge_distances)(notes, jnp.asarray(states[:200]), jnp.asarray(part))
    expected = np.sort(float64_distances(states[:200], states[200:]), axis=1)[:, :3]
    np.testing.assert_allclose(notes, expected, rtol=1e-5)


@pytest.mark.parametrize("order", [2.0, 3.0])
def test_entropies(states: np.ndarray, order: float) -> None:
    episode = states[:1000]
    kernel = np.exp(-(float64_distances(episode, episode) ** 2) / 2)
    normalised = kernel / np.trace(kernel)
    powers = np.linalg.matrix_power(normalised, int(order))
    expected = np.log2(np.trace(powers)) / (1 - order)
    assert float(renyi_entropy(jnp.asarray(episode), order)) == pytest.approx(expected, abs=1e-4)
    shares = renyi_shares(jnp.asarray(episode), order)
    assert float(jnp.mean(shares)) == pytest.approx(expected, abs=1e-3)
    density = -np.mean(np.log(np.mean(kernel, axis=1)))
    assert float(kde_entropy(jnp.asarray(episode))) == pytest.approx(density, abs=1e-4)
    with jax.default_device(jax.devices("cpu")[0]):
        on_host = float(knn_entropy(jnp.asarray(episode)))
    assert float(knn_entropy(jnp.asarray(episode))) == pytest.approx(on_host, abs=1e-3)


@pytest.mark.parametrize("reward", ["element", "rnd", "ngu", "re3"])
def test_a_run(reward: str, tmp_path: Path) -> None:
    options = ("--steps", "400", "--seeds", "2", "--replay-size", "2000", "--workers", "0")
    small = ("--sac.hidden-sizes", "32", "--sac.batch-size", "32", "--sac.learn-start", "200")
    maze = ("explore", "PointMaze-v0", "--env-options", "max_episode_steps=50", "--no-figures")
    assert main([*maze, *options, *small, "--reward", reward, "--out", str(tmp_path / "run")]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["steps"] == 400
    assert np.isfinite(summary["episodic_entropy"]).all()
