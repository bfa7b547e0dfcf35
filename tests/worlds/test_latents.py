"""Worlds with latents: z as on the host, and worlds that do what they do without."""

import jax
import jax.numpy as jnp
import numpy as np

from element_rl.envs.latents import LatentSettings
from element_rl.envs.make import describe
from element_rl.worlds.latents import drawn_latent
from element_rl.worlds.making import make_worlds


def test_worlds_do_what_they_do_without() -> None:
    """Their observations begin alike; z is of length 1, another in each world, and another after
    every three steps."""
    spec, bare = describe("PointMaze", latent="sphere:3:3"), describe("PointMaze")
    told, plain = make_worlds("jax", spec, {"latent": "sphere:3:3"}), make_worlds("jax", bare, {})
    keys = jax.random.split(jax.random.key(0), 5)
    state, seen = told.reset(keys)
    other, without = plain.reset(keys)
    step, plain_step = jax.jit(told.step), jax.jit(plain.step)
    latents = [np.asarray(seen.observation[:, 2:])]
    for number in range(7):
        action = jnp.full((5, 2), 0.3 * number - 1.0)
        state, outcome = step(state, action)
        other, expected = plain_step(other, action)
        np.testing.assert_array_equal(outcome.seen.observation[:, :2], expected.seen.observation)
        np.testing.assert_array_equal(outcome.seen.position, expected.seen.position)
        latents.append(np.asarray(outcome.seen.observation[:, 2:]))
    np.testing.assert_array_equal(seen.observation[:, :2], without.observation)
    drawn = np.stack(latents)
    np.testing.assert_allclose(np.linalg.norm(drawn, axis=-1), 1.0, rtol=1e-6)
    changes = (drawn[1:] != drawn[:-1]).any(axis=-1)
    np.testing.assert_array_equal(changes, np.arange(1, 8)[:, None] % 3 == 0 * np.ones((1, 5)))
    assert len(np.unique(drawn[0], axis=0)) == 5
    again, _ = told.reset(keys)
    np.testing.assert_array_equal(again.latent, drawn[0])


def test_skills_are_zero_centred() -> None:
    keys = jax.random.split(jax.random.key(1), 200)
    draw = jax.jit(jax.vmap(lambda key: drawn_latent(key, LatentSettings(3, "choice"))))
    found = {tuple(np.round(row, 6)) for row in np.asarray(draw(keys)).tolist()}
    assert found == {(1.0, -0.5, -0.5), (-0.5, 1.0, -0.5), (-0.5, -0.5, 1.0)}
