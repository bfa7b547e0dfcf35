"""Vector environments are recorded as the single environments within them would be, however
episodes begin anew."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import minari
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from element_rl.datasets.minari_files import DatasetError, read_dataset
from element_rl.datasets.recorder import VectorRecorder

MODES = list(AutoresetMode)


class Blinking(gymnasium.Env):
    """A random image per step; episodes of random length, some of which terminate."""

    observation_space = gymnasium.spaces.Box(0, 255, (34, 33, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(4)

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 7))
        return self._frame(), {"place": np.array([self.left, 0.5])}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        ends = self.left == 0
        terminates = ends and bool(self.np_random.integers(2))
        info = {"place": np.array([self.left, float(action)])}
        return (
            self._frame(),
            float(action) + self.left / 8,
            terminates,
            ends and not terminates,
            info,
        )

    def _frame(self) -> np.ndarray:
        return self.np_random.integers(0, 256, (34, 33, 3)).astype(np.uint8)


def alone(seed: int, actions: Any) -> list[dict[str, Any]]:
    """Episodes of one environment, which takes the actions that `actions` has for it."""
    env = Blinking()
    episodes: list[dict[str, Any]] = []
    ended = True
    for action in actions:
        if ended:
            observation, info = env.reset(seed=None if episodes else seed)
            episodes.append(
                {
                    "observations": [observation],
                    "actions": [],
                    "rewards": [],
                    "places": [info["place"]],
                }
            )
        episode = episodes[-1]
        observation, reward, terminated, truncated, info = env.step(action)
        for name, value in (
            ("observations", observation),
            ("actions", action),
            ("rewards", reward),
        ):
            episode[name].append(value)
        episode["places"].append(info["place"])
        episode["terminated"] = terminated
        ended = terminated or truncated
    return episodes


def recorded(
    mode: AutoresetMode, root: Path, kind: Callable[..., VectorEnv] = SyncVectorEnv
) -> list[list[int]]:
    """Records three environments; the actions each of them took."""
    envs = kind([Blinking] * 3, autoreset_mode=mode)
    taken: list[list[int]] = [[], [], []]
    generator = np.random.default_rng(0)
    with VectorRecorder(envs, "tiny/frames-v0", root, lambda _, info: info["place"]) as recorder:
        recorder.reset(seed=5)
        ended = np.zeros(3, bool)
        for _ in range(40):
            actions = generator.integers(0, 4, 3)
            if mode == AutoresetMode.DISABLED and ended.any():
                recorder.reset(options={"reset_mask": ended})
            for index in range(3):
                if not (mode == AutoresetMode.NEXT_STEP and ended[index]):
                    taken[index].append(int(actions[index]))
            _, _, terminated, truncated, _ = recorder.step(actions)
            ended = terminated | truncated
            actions[:] = 0  # the recorder has its own copy
        recorder.finish()
    return taken


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_no_step_leads_from_one_episode_to_the_next(mode: AutoresetMode, tmp_path: Path) -> None:
    taken = recorded(mode, tmp_path)
    compare_with_single_environments(taken, tmp_path)


def test_environments_in_processes_of_their_own(tmp_path: Path) -> None:
    module = sys.modules[Blinking.__module__]
    cloudpickle.register_pickle_by_value(module)  # other processes cannot import it
    try:  # not by fork, which JAX warns of
        taken = recorded(
            AutoresetMode.SAME_STEP, tmp_path, partial(AsyncVectorEnv, context="spawn")
        )
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    compare_with_single_environments(taken, tmp_path)


def compare_with_single_environments(taken: list[list[int]], tmp_path: Path) -> None:
    dataset = read_dataset("tiny/frames-v0", tmp_path)
    for index, actions in enumerate(taken):
        mine = [
            e for e, entry in enumerate(dataset.episodes.metadata) if entry["environment"] == index
        ]
        part = dataset.episodes.chosen(mine)
        expected = alone(5 + index, actions)
        assert part.lengths.tolist() == [len(one["actions"]) for one in expected]
        np.testing.assert_array_equal(
            part.observation, np.concatenate([one["observations"] for one in expected])
        )
        np.testing.assert_array_equal(
            part.position, np.concatenate([one["places"] for one in expected])
        )
        steps = part.transitions
        np.testing.assert_array_equal(part.action[steps], actions)
        np.testing.assert_array_equal(
            part.reward[steps], np.concatenate([one["rewards"] for one in expected])
        )
        ends = np.cumsum(part.lengths + 1) - 2
        assert part.terminated[ends].tolist() == [one["terminated"] for one in expected]
        assert part.truncated[ends].tolist() == [not one["terminated"] for one in expected]
        assert part.metadata[0]["seed"] == 5 + index


def test_minari_reads_what_was_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    envs = SyncVectorEnv([lambda: gymnasium.make("Pendulum-v1", max_episode_steps=7)] * 2)
    with VectorRecorder(envs, "pendulum/random-v0") as recorder:
        recorder.reset(seed=[3, 4])
        for _ in range(20):
            recorder.step(recorder.action_space.sample())
        recorder.finish()
    dataset = minari.load_dataset("pendulum/random-v0")
    assert [len(episode) for episode in dataset.iterate_episodes()] == [7, 7, 7, 7, 4, 4]
    assert dataset.recover_environment().spec.max_episode_steps == 7
    recorded(AutoresetMode.SAME_STEP, tmp_path)
    frames = minari.load_dataset("tiny/frames-v0")
    assert all(
        frames.observation_space.contains(row) for episode in frames for row in episode.observations
    )


def test_nothing_is_left_without_finish(tmp_path: Path) -> None:
    with VectorRecorder(SyncVectorEnv([Blinking] * 2), "tiny/frames-v0", tmp_path) as recorder:
        with pytest.raises(ValueError, match="call reset"):
            recorder.step(np.zeros(2, int))
        recorder.reset()
        for _ in range(10):
            recorder.step(np.zeros(2, int))
    assert list((tmp_path / "tiny").iterdir()) == []
    recorder = VectorRecorder(SyncVectorEnv([Blinking] * 2), "tiny/frames-v0", tmp_path)
    with recorder, pytest.raises(DatasetError, match="no finished episode"):
        recorder.finish()
    assert list((tmp_path / "tiny").iterdir()) == []


def test_an_ended_environment_is_not_stepped(tmp_path: Path) -> None:
    envs = SyncVectorEnv([Blinking] * 2, autoreset_mode=AutoresetMode.DISABLED)
    with VectorRecorder(envs, "tiny/frames-v0", tmp_path) as recorder:
        recorder.reset(seed=0)
        while not np.logical_or(*recorder.step(np.zeros(2, int))[2:4]).any():
            pass
        with pytest.raises(ValueError, match=r"Environment \d has no running episode"):
            recorder.step(np.zeros(2, int))
