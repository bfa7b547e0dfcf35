"""Latents: what z is, that an episode is a function of its seed, and that the environment behind it
does what it does without."""

import pickle
import re
from typing import Any

import gymnasium
import numpy as np
import pytest

from element_rl.envs.latents import (
    LatentBox,
    LatentObservation,
    LatentSettings,
    drawn_latent,
    latent_dim_of,
    parsed_latent,
)
from element_rl.envs.make import describe, env_maker, make_env


def maze(steps: int = 6, **latent: Any) -> LatentObservation:
    return LatentObservation(make_env("PointMaze", max_episode_steps=steps), **latent)


def told(env: gymnasium.Env, seed: int | None, steps: int = 6) -> np.ndarray:
    """The observations of an episode of fixed actions."""
    observation, _ = env.reset(seed=seed)
    seen = [observation]
    for step in range(steps):
        seen.append(env.step(np.array([np.sin(step), np.cos(step)], np.float32))[0])
    return np.stack(seen)


def test_the_environment_does_what_it_does_without() -> None:
    bare, latent = make_env("PointMaze", max_episode_steps=6), maze(dim=3)
    for seed in (0, 7, None):
        np.testing.assert_array_equal(told(latent, seed)[:, :2], told(bare, seed))


def test_an_episode_is_a_function_of_its_seed() -> None:
    first = told(maze(dim=3, every=2), 5)
    again = maze(dim=3, every=2)
    told(again, 1)
    np.testing.assert_array_equal(told(again, 5), first)
    assert not np.array_equal(told(again, 6)[0, 2:], first[0, 2:])
    assert not np.array_equal(told(again, None)[0, 2:], told(again, None)[0, 2:])


def test_when_it_is_drawn() -> None:
    """For a whole episode, or after every two steps: three different z in four steps."""
    whole = told(maze(dim=2), 0)[:, 2:]
    assert (whole == whole[0]).all()
    parts = told(maze(dim=2, every=2), 0, steps=4)[:, 2:]
    for pair in (0, 2):
        np.testing.assert_array_equal(parts[pair], parts[pair + 1])
    assert len(np.unique(parts, axis=0)) == 3


def test_what_it_is() -> None:
    rng = np.random.default_rng(0)
    sphere = np.stack([drawn_latent(rng, LatentSettings(3)) for _ in range(2_000)])
    np.testing.assert_allclose(np.linalg.norm(sphere, axis=1), 1.0)
    np.testing.assert_allclose(sphere.mean(axis=0), 0.0, atol=0.05)
    np.testing.assert_allclose(sphere.T @ sphere / len(sphere), np.eye(3) / 3, atol=0.03)
    skills = np.stack([drawn_latent(rng, LatentSettings(4, "choice")) for _ in range(400)])
    by_hand = {tuple(np.where(np.arange(4) == skill, 1.0, -1 / 3)) for skill in range(4)}
    assert set(map(tuple, skills)) == by_hand
    np.testing.assert_allclose(np.sum(list(by_hand), axis=0), 0.0, atol=1e-12)


def test_the_space_says_so() -> None:
    env = maze(dim=2, kind="choice")
    space = env.observation_space
    assert (space.shape, space.dtype, latent_dim_of(space)) == ((4,), np.dtype(np.float32), 2)
    np.testing.assert_array_equal(space.low, [-1, -1, -1, -1])
    observation, _ = env.reset(seed=0)
    assert space.contains(observation)
    copy = pickle.loads(pickle.dumps(space))
    assert isinstance(copy, LatentBox)
    assert copy == space
    assert copy.latent == LatentSettings(2, "choice")
    assert latent_dim_of(env.env.observation_space) == 0
    whole_numbers = gymnasium.spaces.Box(0, 9, (3,), np.int64)
    assert LatentBox(whole_numbers, LatentSettings(2)).dtype == np.float32


def test_environments_by_name_have_them_too() -> None:
    """What workers and evaluators make; its description counts z, and says how much of it there
    is."""
    options = {"latent": "sphere:3", "max_episode_steps": 6}
    np.testing.assert_array_equal(told(env_maker("PointMaze", options)(), 4), told(maze(dim=3), 4))
    spec, bare = describe("PointMaze", **options), describe("PointMaze", max_episode_steps=6)
    assert (spec.observation_shape, spec.latent_dim, spec.task_dim) == ((5,), 3, 2)
    assert (bare.latent_dim, bare.task_dim) == (0, 2)
    assert spec.coverage_bounds == bare.coverage_bounds


def test_mistakes_get_one_sentence() -> None:
    assert parsed_latent("sphere:8:500") == LatentSettings(8, "sphere", 500)
    for text, sentence in (
        ("sphere", "latent is 'sphere'; say KIND:DIM or KIND:DIM:STEPS, such as sphere:2"),
        ("sphere:-1", "say KIND:DIM"),
        ("ball:2", "A latent is sphere or choice, not 'ball'."),
        ("choice:1", "A latent of kind choice has at least 2 columns."),
        ("sphere:2:0", "A latent is drawn every 1 or more steps, not every 0."),
    ):
        with pytest.raises(ValueError, match=re.escape(sentence)):
            make_env("PointMaze", latent=text)
    with pytest.raises(ValueError, match="The environment has latents already: wrap it once"):
        LatentObservation(maze())
    with pytest.raises(ValueError, match="Latents are appended to a flat Box, and the environment"):
        LatentObservation(gymnasium.make("FrozenLake-v1", disable_env_checker=True))
    with pytest.raises(ValueError, match="there is no column 2"):
        describe("PointMaze", ("0", "2"), (), "vectors", latent="sphere:2")
