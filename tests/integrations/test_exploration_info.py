"""The wrapper's numbers by hand and against the library's own; every autoreset mode; other
libraries' wrappers around it."""

from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from element_rl.encoders.state import make_state_encoder
from element_rl.entropy import renyi_entropy
from element_rl.envs.make import describe, make_env
from element_rl.envs.spec import coverage_cell, position_of
from element_rl.integrations.exploration_info import ExplorationInfo, VectorExplorationInfo
from element_rl.integrations.observations import StateSource


class Walk(gymnasium.Env):
    """A point on the line that goes where it is told, for four steps; starts at 0."""

    observation_space = gymnasium.spaces.Box(-8.0, 8.0, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.x, self.time = 0.0, 0
        return self._observed()

    def step(self, action: np.ndarray) -> Any:
        self.x, self.time = self.x + float(action[0]), self.time + 1
        observation, info = self._observed()
        return observation, self.x, self.x >= 3.0, self.time >= 4, info

    def _observed(self) -> Any:
        return np.array([self.x], np.float32), {"x": self.x}


def positions_themselves(observations: np.ndarray, infos: Any) -> np.ndarray:
    """A function for the states: what is observed."""
    return observations


def walk(env: gymnasium.Env, *moves: float) -> list[dict[str, Any]]:
    """The infos of an episode's steps."""
    env.reset(seed=0)
    return [env.step(np.array([move], np.float32))[4] for move in moves]


def test_the_numbers_by_hand() -> None:
    env = ExplorationInfo(
        Walk(),
        position=(0,),
        states=positions_themselves,
        cells=16,
        num_neighbours=2,
        entropy_order=2,
    )
    first = walk(env, 1, 1, -1, -1)  # at 1, 2, 1, 0
    assert [info["novelty"] for info in first] == [0, 0, 0, 0]  # nothing is remembered yet
    assert [info["coverage"] for info in first] == [1, 2, 2, 3]
    assert ["episode_entropy" in info for info in first] == [False, False, False, True]
    # The Gram matrix of 1, 2, 1, 0 over its trace: entries κ(0)/4, κ(1)/4 or κ(2)/4. H2 = −log2 of
    # the sum of their squares.
    ones, twos = 2 * 4, 2 * 1  # pairs at distance 1, at distance 2; six entries have distance 0
    sum_of_squares = (6 + ones * np.exp(-0.5) ** 2 + twos * np.exp(-2.0) ** 2) / 16
    assert first[-1]["episode_entropy"] == pytest.approx(-np.log2(sum_of_squares), abs=1e-5)
    second = walk(env, -1, 1, 1, 1)  # at −1, 0, 1, 2; remembered are 0, 1, 1, 2
    expected = [np.log1p(np.sqrt(1 + 4)), np.log1p(1.0), 0.0, np.log1p(1.0)]
    np.testing.assert_allclose([info["novelty"] for info in second], expected, atol=1e-6)
    assert second[-1]["coverage"] == 4


def test_a_robot_is_measured_as_evaluation_measures_it() -> None:
    spec, options = describe("PointMaze"), {"max_episode_steps": 30}
    env = ExplorationInfo(make_env("PointMaze", **options), seed=5)
    encoder, cells, entropies = make_state_encoder(5, spec.observation_dim), set(), []
    env.action_space.seed(0)
    for episode in range(2):
        env.reset(seed=episode)
        states, done = [], False
        while not done:
            observation, _, terminated, truncated, info = env.step(env.action_space.sample())
            position = position_of(spec, observation, info)
            cells.add(int(coverage_cell(spec, position)))
            states.append(encoder(jnp.asarray(observation), jnp.asarray(position)))
            done = terminated or truncated
        entropies.append(info["episode_entropy"])
        assert info["episode_entropy"] == pytest.approx(
            float(renyi_entropy(jnp.stack(states), 1.001)), abs=1e-4
        )
    assert info["coverage"] == len(cells)
    assert entropies[0] != entropies[1]
    assert info["novelty"] > 0


def test_one_name_is_one_entry() -> None:
    """A position given as a text is not read letter by letter."""
    source = StateSource(Walk().observation_space, position="depth")
    assert source.position == ("depth",)
    _, beside = source.read(np.zeros((1, *source.space.shape), np.float32), [{"depth": 3.0}])
    np.testing.assert_array_equal(beside, [[3.0]])
    with pytest.raises(ValueError, match="no entry 'depth'"):
        source.read(np.zeros((1, *source.space.shape), np.float32), [{"x": 3.0}])


def test_the_environment_is_left_as_it_is() -> None:
    plain, env = Walk(), ExplorationInfo(Walk(), position=("x",))
    assert (env.observation_space, env.action_space) == (
        plain.observation_space,
        plain.action_space,
    )
    plain.reset(seed=1), env.reset(seed=1)
    for _ in range(4):
        ours, theirs = env.step(np.array([0.5])), plain.step(np.array([0.5]))
        assert data_equivalence(ours[:4], theirs[:4])
        assert theirs[4].items() <= ours[4].items()


@pytest.mark.filterwarnings("ignore:.*different from the unwrapped version")
def test_gymnasium_checks_it() -> None:
    check_env(ExplorationInfo(make_env("PointMaze")), skip_render_check=True)


def test_the_same_seeds_give_the_same_numbers_and_others_do_not() -> None:
    def novelties(seed: int) -> list[float]:
        env = ExplorationInfo(Walk(), seed=seed)
        walk(env, 1, 1, 1)
        return [info["novelty"] for info in walk(env, -1, -1, -1)]

    assert novelties(0) == novelties(0) != novelties(1)


MOVES = np.random.default_rng(0).uniform(-1, 1, (24, 3, 1)).astype(np.float32)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_vector_environments_in_every_autoreset_mode(mode: AutoresetMode) -> None:
    """Three environments, each given its own moves, see what their twins beside them see; they
    remember all in common."""
    envs = VectorExplorationInfo(
        SyncVectorEnv([Walk] * 3, autoreset_mode=mode),
        position=("x",),
        states=positions_themselves,
        entropy_order=2,
    )
    twins = [Walk() for _ in range(3)]
    paths: list[list[float]] = [[] for _ in twins]
    remembered: list[float] = []
    envs.reset(seed=0)
    for twin in twins:
        twin.reset(seed=0)
    resetting = np.zeros(3, bool)
    for moves in MOVES:
        if mode is AutoresetMode.DISABLED and resetting.any():
            envs.reset(options={"reset_mask": resetting.copy()})
            resetting[:] = False
        _, _, _, _, infos = envs.step(moves)
        ended = np.zeros(3, bool)
        for row, twin in enumerate(twins):
            if resetting[row]:  # only NEXT_STEP gets here: this step was the reset
                twin.reset()
                assert not infos["_novelty"][row]
                continue
            _, _, terminated, truncated, _ = twin.step(moves[row])
            nearest = np.sort(np.abs(np.array(remembered) - np.float32(twin.x)))[:3]
            assert infos["novelty"][row] == pytest.approx(
                np.log1p(np.linalg.norm(nearest)), abs=1e-5
            )
            assert infos["_novelty"][row]
            paths[row].append(np.float32(twin.x))
            ended[row] = terminated or truncated
        for row in np.flatnonzero(ended):
            expected = float(renyi_entropy(jnp.array(paths[row])[:, None], 2))
            assert infos["episode_entropy"][row] == pytest.approx(expected, abs=1e-4)
            remembered += paths[row]
            paths[row] = []
            if mode is not AutoresetMode.NEXT_STEP:
                twins[row].reset()
        np.testing.assert_array_equal(infos.get("_episode_entropy", np.zeros(3, bool)), ended)
        resetting = ended if mode is not AutoresetMode.SAME_STEP else np.zeros(3, bool)
    assert len(envs.record.memory) == len(remembered) > 30


def test_a_reset_forgets_the_running_episode_and_a_long_one_is_several() -> None:
    env = ExplorationInfo(Walk(), states=positions_themselves, max_episode_steps=3)
    walk(env, 1, -1)
    env.reset()
    assert env.record.memory is None
    infos = walk(env, 0.5, 0.5, 0.5, 0.5)
    assert ["episode_entropy" in info for info in infos] == [False, False, True, True]
    assert len(env.record.memory) == 4
    assert "coverage" not in infos[0]  # nobody said where the agent is


def test_cells_of_side_one_without_bounds() -> None:
    env = ExplorationInfo(Walk(), position=("x",), states=positions_themselves)
    assert walk(env, -0.5, -0.4, -0.4, 1)[-1]["coverage"] == 2  # at −0.5, −0.9, −1.3, −0.3
    bounded = ExplorationInfo(Walk(), position=("x",), bounds=[(-1, 1)], cells=4)
    assert walk(bounded, -1, -1, 1, 1)[-1]["coverage"] == 2  # at −1, −2 (the border's cell), −1, 0


class WalkOfParts(Walk):
    """The same, observed as a dictionary."""

    observation_space = gymnasium.spaces.Dict({"x": Walk.observation_space})

    def _observed(self) -> Any:
        observation, info = super()._observed()
        return {"x": observation}, info


def test_dictionaries_are_the_same_states() -> None:
    def vector(kind: type[gymnasium.Env]) -> list[list[float]]:
        envs = VectorExplorationInfo(
            SyncVectorEnv([kind] * 3, autoreset_mode=AutoresetMode.SAME_STEP), entropy_order=2
        )
        envs.reset(seed=0)
        return [envs.step(moves)[4]["novelty"].tolist() for moves in MOVES[:12]]

    assert vector(WalkOfParts) == vector(Walk)
    plain, parts = (
        walk(ExplorationInfo(kind(), entropy_order=2), 1, 1, -1, -1)[-1]
        for kind in (Walk, WalkOfParts)
    )
    assert plain["episode_entropy"] == parts["episode_entropy"] > 0


class Screen(gymnasium.Env):
    """Images with a white column that moves."""

    observation_space = gymnasium.spaces.Box(0, 255, (36, 36, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self._image(), {}

    def step(self, action: int) -> Any:
        self.time += 1
        return self._image(), 0.0, False, self.time == 3, {}

    def _image(self) -> np.ndarray:
        image = np.zeros((36, 36, 3), np.uint8)
        image[:, 10 * self.time] = 255
        return image


def test_images_have_states_too() -> None:
    env = ExplorationInfo(Screen(), entropy_order=2)
    for _ in range(2):
        env.reset(seed=0)
        infos = [env.step(0)[4] for _ in range(3)]
    assert infos[-1]["episode_entropy"] > 0
    distances, _ = env.record.memory.query(env.record.memory.states()[3:], 1)
    np.testing.assert_allclose(distances, 0, atol=1e-3)  # the same images again


def test_mistakes_are_answered_in_a_sentence() -> None:
    for wrong, sentence in (
        ({"memory": "elephant"}, "no memory called 'elephant'"),
        ({"cells": 0}, "cells must be at least 1"),
        ({"position": ("x",), "bounds": [(0, 1), (0, 1)]}, "bounds must be 1 pairs"),
        ({"position": (1,)}, "which are 0 to 0; got 1"),
        ({"position": ("x",), "bounds": [(1, 0)]}, "the first of each pair below the second"),
    ):
        with pytest.raises(ValueError, match=sentence):
            ExplorationInfo(Walk(), **wrong)
    with pytest.raises(ValueError, match="no entry 'y'"):
        walk(ExplorationInfo(Walk(), position=("y",)), 1)
    silent = SyncVectorEnv([Walk])
    silent.metadata = {}
    with pytest.raises(ValueError, match="does not say when it resets"):
        VectorExplorationInfo(silent)


def test_stable_baselines3_logs_it() -> None:
    pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    def make() -> gymnasium.Env:
        return Monitor(
            ExplorationInfo(Walk(), position=("x",)),
            info_keywords=("episode_entropy", "coverage", "novelty"),
        )

    envs = DummyVecEnv([make, make])
    envs.reset()
    for _ in range(4):
        _, _, dones, infos = envs.step(np.full((2, 1), 0.5, np.float32))
    assert dones.all()
    assert infos[0]["episode"]["coverage"] == 3  # 0.5; 1 and 1.5; 2
    assert infos[0]["episode"]["episode_entropy"] > 0


def test_a_registered_environment_needs_no_position() -> None:
    """The cells are those that a run counts."""
    spec = describe("CartPole-v1")
    env = ExplorationInfo(gymnasium.make("CartPole-v1"), entropy_order=2)
    env.action_space.seed(0)
    env.reset(seed=0)
    cells = set()
    for _ in range(8):
        observation, _, _, _, info = env.step(env.action_space.sample())
        cells.add(int(coverage_cell(spec, np.zeros(0, np.float32), observation)))
        assert info["coverage"] == len(cells)
    envs = VectorExplorationInfo(gymnasium.make_vec("CartPole-v1", num_envs=2), entropy_order=2)
    envs.reset(seed=0)
    assert envs.step(envs.action_space.sample())[4]["coverage"].min() >= 1


def test_a_position_is_found() -> None:
    """It is read from the environment, whatever the observation has become."""
    wrappers = pytest.importorskip("minigrid.wrappers")
    env = wrappers.ImgObsWrapper(gymnasium.make("MiniGrid-Empty-5x5-v0"))
    env = ExplorationInfo(env, entropy_order=2)
    env.reset(seed=0)
    counts = [env.step(action)[4]["coverage"] for action in (2, 2, 0, 0, 2)]  # there and back
    assert counts == [1, 2, 2, 2, 2]
