"""ST-DIM's loss is the published one, at chance for features that say nothing; a stored encoder is
the one that was stored."""

import json
import math
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, UInt8

from element_rl.encoders.frozen import (
    FILE,
    FrozenEncoder,
    encode_all,
    freeze,
    load_encoder,
    random_encoder,
    save_encoder,
)
from element_rl.encoders.stdim import (
    STDIM,
    NetworkConfig,
    global_local_scores,
    info_nce,
    local_local_scores,
    make_encoder,
    make_stdim,
    stdim_loss,
)
from element_rl.storage.files import FileError, write_arrays

compiled_loss, made = eqx.filter_jit(stdim_loss), eqx.filter_jit(make_stdim)
TINY = NetworkConfig(state_dim=3, channels=(2, 4), kernels=(4, 3), strides=(2, 1), hidden=5)


def some_frames(count: int, side: int = 12, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, side, side), dtype=np.uint8)


def by_hand(model: STDIM, first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Both losses in loops, from the features, in float64."""
    local_first, states = (
        np.asarray(part, np.float64) for part in model.encoder(jnp.asarray(first))
    )
    local_second = np.asarray(model.encoder(jnp.asarray(second))[0], np.float64)
    global_weights, local_weights = (
        np.asarray(w, np.float64) for w in (model.global_local, model.local_local)
    )
    batch, places, _ = local_first.shape
    totals = [0.0, 0.0]
    for own in range(batch):
        for place in range(places):
            for index, query in enumerate(
                (states[own] @ global_weights, local_first[own, place] @ local_weights)
            ):
                scores = [float(query @ local_second[other, place]) for other in range(batch)]
                totals[index] += math.log(sum(math.exp(score) for score in scores)) - scores[own]
    return totals[0] / (batch * places), totals[1] / (batch * places)


def test_the_loss_is_the_published_one() -> None:
    model = made(jax.random.key(1), (12, 12), TINY)
    first, second = some_frames(5), some_frames(5, seed=1)
    loss, metrics = compiled_loss(model, jnp.asarray(first), jnp.asarray(second))
    global_local, local_local = by_hand(model, first, second)
    np.testing.assert_allclose(metrics["global_local_loss"], global_local, rtol=1e-5)
    np.testing.assert_allclose(metrics["local_local_loss"], local_local, rtol=1e-5)
    np.testing.assert_allclose(loss, (global_local + local_local) / 2, rtol=1e-5)


def test_scores_of_numbers_one_can_follow() -> None:
    """Two pairs, one place, features of width two."""
    model = made(jax.random.key(0), (12, 12), NetworkConfig(2, (2, 2), (4, 3), (2, 1), 5))
    weights = jnp.array([[1.0, 2.0], [0.0, 1.0]])
    model = eqx.tree_at(lambda m: (m.global_local, m.local_local), model, (weights, weights))
    first, second = jnp.array([[1.0, 0.0], [0.0, 1.0]]), jnp.array([[[3.0, 1.0]], [[0.0, 2.0]]])
    # (1, 2)·(3, 1), (1, 2)·(0, 2); (0, 1)·(3, 1), (0, 1)·(0, 2)
    expected = [[[5.0, 4.0], [1.0, 2.0]]]
    np.testing.assert_array_equal(global_local_scores(model, first, second), expected)
    np.testing.assert_array_equal(local_local_scores(model, first[:, None], second), expected)
    loss, accuracy = info_nce(jnp.array(expected))
    np.testing.assert_allclose(loss, math.log(1 + math.exp(-1)), rtol=1e-6)  # both rows win by 1
    assert accuracy == 1


def test_features_that_say_nothing_are_at_chance() -> None:
    model = made(jax.random.key(2), (12, 12), TINY)
    same = jnp.asarray(np.repeat(some_frames(1), 8, axis=0))
    _, metrics = compiled_loss(model, same, same)
    for name in ("global_local_loss", "local_local_loss"):
        np.testing.assert_allclose(metrics[name], math.log(8), rtol=1e-5)
    for name in ("global_local_accuracy", "local_local_accuracy"):
        assert metrics[name] == pytest.approx(1 / 8)


def test_a_pair_is_known_by_its_own_order_only() -> None:
    """Any order of the pairs gives the same loss; pairs torn apart do not."""
    model = made(jax.random.key(3), (12, 12), TINY)
    first, second = some_frames(6), some_frames(6, seed=1)
    order = np.random.default_rng(0).permutation(6)
    whole, _ = compiled_loss(model, jnp.asarray(first), jnp.asarray(second))
    shuffled, _ = compiled_loss(model, jnp.asarray(first[order]), jnp.asarray(second[order]))
    torn, _ = compiled_loss(model, jnp.asarray(first), jnp.asarray(np.roll(second, 1, axis=0)))
    np.testing.assert_allclose(whole, shuffled, rtol=1e-5)
    assert abs(float(whole) - float(torn)) > 1e-3


def test_gradients_reach_everything_that_is_trained() -> None:
    model = made(jax.random.key(4), (12, 12), TINY)
    gradients = eqx.filter_jit(
        eqx.filter_grad(
            lambda m: stdim_loss(m, *(jnp.asarray(some_frames(6, seed=s)) for s in (0, 1)))[0]
        )
    )(model)
    for gradient in jax.tree.leaves(gradients):
        assert np.abs(gradient).max() > 0


def test_convolutions_against_loops() -> None:
    """One layer, by hand: correlation without padding, frames scaled to [0, 1]."""
    config = NetworkConfig(state_dim=2, channels=(3,), kernels=(4,), strides=(2,), hidden=4)
    encoder = make_encoder(jax.random.key(5), (8, 10), config)
    frames = np.random.default_rng(0).integers(0, 256, (2, 8, 10), dtype=np.uint8)
    kernel = np.asarray(encoder.kernels[0], np.float64)[:, :, 0]
    expected = np.zeros((2, 3, 4, 3))
    for row in range(3):
        for column in range(4):
            window = frames[:, 2 * row : 2 * row + 4, 2 * column : 2 * column + 4] / 255
            expected[:, row, column] = np.maximum(np.einsum("bij,ijo->bo", window, kernel), 0)
    local, states = encoder(jnp.asarray(frames))
    np.testing.assert_allclose(local, expected.reshape(2, 12, 3), rtol=1e-4, atol=1e-5)
    inner = np.maximum(expected.reshape(2, -1) @ np.asarray(encoder.weights[0]), 0)
    np.testing.assert_allclose(states, inner @ np.asarray(encoder.weights[1]), rtol=1e-4, atol=1e-5)


def test_a_frozen_encoder_is_standardised_by_one_number() -> None:
    network = make_encoder(jax.random.key(6), (12, 12), TINY)
    frames = some_frames(300)
    plain, frozen = (freeze(network, (12, 12), TINY, given, spread=2.0) for given in (None, frames))
    states, raw = encode_all(frozen, frames), encode_all(plain, frames)
    np.testing.assert_allclose(states.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(states.var(axis=0).sum(), 4.0, rtol=1e-4)
    ratio = (states - states.mean(axis=0)) / (raw - raw.mean(axis=0))
    np.testing.assert_allclose(np.median(ratio), float(frozen.scale), rtol=1e-3)
    with pytest.raises(ValueError, match="All 4 frames have the same state"):
        freeze(network, (12, 12), TINY, np.repeat(frames[:1], 4, axis=0))


def test_encoding_in_blocks_is_encoding() -> None:
    """Also for a number of frames that is no multiple of the block, and under jit."""
    encoder = random_encoder(jax.random.key(7), (84, 84), frames=some_frames(20, 84))
    frames = some_frames(259, 84, seed=2)
    states = encode_all(encoder, frames)
    assert states.shape == (259, 32)
    assert states.dtype == np.float32
    assert encoder.state_dim == 32

    @eqx.filter_jit
    def compiled(own: FrozenEncoder, batch: UInt8[Array, "B H W"]) -> Float[Array, "B D"]:
        return own(batch)

    for rows in (slice(0, 3), slice(256, 259)):
        np.testing.assert_allclose(encoder(frames[rows]), states[rows], atol=1e-5)
        np.testing.assert_allclose(
            compiled(encoder, jnp.asarray(frames[rows])), states[rows], atol=1e-5
        )


def test_stored_encoders(tmp_path: Path) -> None:
    encoder = random_encoder(jax.random.key(8), (12, 12), 3, some_frames(50), TINY)
    path = save_encoder(tmp_path / "run", encoder, {"env": "Rooms-v0"})
    frames = some_frames(4, seed=9)
    for place in (path, path.parent, str(path.parent)):
        loaded = load_encoder(place)
        np.testing.assert_array_equal(loaded(frames), encoder(frames))
        assert (loaded.frame_shape, loaded.config, loaded.state_dim) == ((12, 12), TINY, 3)


def test_what_is_no_encoder_is_said(tmp_path: Path) -> None:
    with pytest.raises(
        FileError,
        match=f"There is no encoder in {tmp_path} .*make one with element pretrain-encoder",
    ):
        load_encoder(tmp_path)
    path = save_encoder(tmp_path, random_encoder(jax.random.key(0), (12, 12), 3, config=TINY))
    assert path.name == FILE
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(FileError, match="damaged"):
        load_encoder(tmp_path)
    settings = json.dumps({"state_dim": 3, "depth": 4})
    write_arrays(path, {"x": np.zeros(2)}, {"network": settings, "frame_shape": "[12, 12]"})
    with pytest.raises(FileError, match=r"no encoder of this version .*'depth'"):
        load_encoder(tmp_path)


def test_sizes_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="A frame of 6 pixels is too small"):
        make_encoder(jax.random.key(0), (84, 6), NetworkConfig())
    with pytest.raises(ValueError, match="3, 2 and 3 of them are given"):
        NetworkConfig(kernels=(8, 4))
    with pytest.raises(ValueError, match=r"takes frames of \(12, 12\) pixels, got \(8, 8\)"):
        random_encoder(jax.random.key(0), (12, 12), 3, config=TINY)(some_frames(2, 8))
