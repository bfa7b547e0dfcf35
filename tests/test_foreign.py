"""Environments and rewards of the user's that raise or return something wrong: one sentence that
names their function and file, their traceback and not ours, and exit code 2."""

import sys
import textwrap
from pathlib import Path

import gymnasium
import pytest

from element_rl.cli import main

WORLD = """
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

class World(gymnasium.Env):
    observation_space, action_space = Box(-1, 1, (2,), np.float32), Box(-1, 1, (1,), np.float32)
    def __init__(self, fault=""):
        self.fault = fault
        if fault == "constructor":
            self.missing_name()
        if fault == "empty":
            self.observation_space = Box(-1, 1, (0,), np.float32)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.fault == "reset":
            return {}["no such key"]
        return np.zeros(self.observation_space.shape, self.observation_space.dtype), {}
    def step(self, action):
        if self.fault == "step":
            [][7]
        return self.reset()[0], 0.0, False, False, {}
    def close(self):
        if self.fault == "close":
            raise RuntimeError("it cannot be closed")

class Shown(World):
    observation_space, action_space = Box(0, 255, (84, 84), np.uint8), Discrete(2)
    def reset(self, *, seed=None, options=None):
        image, info = super().reset(seed=seed)
        return {"none": None, "float": image.astype(float)}.get(self.fault, image), info

gymnasium.register("World-v0", World, max_episode_steps=20)
gymnasium.register("Shown-v0", Shown, max_episode_steps=20)
"""
REWARD = """
from dataclasses import dataclass
from typing import ClassVar
import jax.numpy as jnp

@dataclass(frozen=True)
class Own:
    name: ClassVar[str] = "own"
    fault: str = ""
    @property
    def metric_names(self): return self.told("metric_names", ())
    def note_shapes(self): return self.told("note_shapes", {})
    def init(self, key, spec): return jnp.zeros(()) if self.fault != "init" else 1 / 0
    def observe(self, state, episode): return self.told("observe", (state, {}))
    def update(self, state, batch, key): return self.told("update", (state, {}))
    def reward(self, state, batch): return self.told("reward", batch.state[:, 0])
    def reward_terms(self, state, batch):
        return self.told("reward_terms", {"reward_lifelong": batch.state[:, 0]})
    def told(self, function, answer):
        if self.fault == function + "-raises":
            raise KeyError("what is missing")
        return None if self.fault == function else answer

def make(fault=""): return Own(fault=fault)
"""
SMALL = (
    *("--steps", "80", "--chunk-steps", "20", "--workers", "0", "--no-figures", "--out", "run"),
    *("--sac.hidden-sizes", "8", "--sac.batch-size", "8", "--sac.learn-start", "20"),
    *("--random-seeds", "0", "--replay-size", "200"),
)
SCREEN = ("--steps", "40", "--workers", "0", "--no-figures", "--out", "run", "--random-seeds", "0")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("their_world.py").write_text(textwrap.dedent(WORLD))
    Path("their_reward.py").write_text(textwrap.dedent(REWARD))
    sys.modules.pop("their_world", None)
    for name in ("World-v0", "Shown-v0"):
        gymnasium.registry.pop(name, None)


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert "element_rl/" not in said  # nothing of ours
    assert "Traceback" not in said
    return said


@pytest.mark.parametrize(
    ("fault", "function", "error"),
    [
        ("constructor", "__init__", "AttributeError"),
        ("reset", "reset", "KeyError"),
        ("step", "step", "IndexError"),
        ("close", "close", "RuntimeError"),
    ],
)
@pytest.mark.parametrize("command", ["explore", "on-policy"])
def test_an_environment_that_raises(
    capsys: pytest.CaptureFixture[str], command: str, fault: str, function: str, error: str
) -> None:
    env, rest = ("World-v0", SMALL) if command == "explore" else ("Shown-v0", SCREEN)
    options = ("--env-options", f"fault={fault}")
    said = answer(capsys, command, f"their_world:{env}", *options, *rest)
    theirs = said[said.index("In your code:") :]
    assert "their_world.py" in theirs
    assert f"in {function}\n" in theirs
    assert error in theirs


@pytest.mark.parametrize(("fault", "shown"), [("none", "NoneType"), ("float", "float64, [84, 84]")])
def test_what_is_shown_and_is_no_image(
    capsys: pytest.CaptureFixture[str], fault: str, shown: str
) -> None:
    options = ("--env-options", f"fault={fault}")
    said = answer(capsys, "on-policy", "their_world:Shown-v0", *options, *SCREEN)
    assert "'Shown-v0' showed" in said
    assert shown in said


def test_an_empty_observation(capsys: pytest.CaptureFixture[str]) -> None:
    said = answer(capsys, "explore", "their_world:World-v0", "--env-options", "fault=empty", *SMALL)
    assert "there is nothing to learn" in said


@pytest.mark.parametrize(
    "function",
    ["metric_names", "note_shapes", "init", "observe", "update", "reward", "reward_terms"],
)
@pytest.mark.parametrize("raises", [True, False])
def test_a_reward_that_raises_or_returns_nothing(
    capsys: pytest.CaptureFixture[str], function: str, raises: bool
) -> None:
    fault = f"{function}-raises" if raises and function != "init" else function
    own = ("--reward", "their_reward.py:make", "--reward-options", f"fault={fault}")
    said = answer(capsys, "explore", "their_world:World-v0", *own, *SMALL)
    assert "their_reward.py, line" in said
    if raises or function == "init":
        assert "raised " in said
        assert f"in {function}\n" in said
    else:
        assert f"Own.{function} in their_reward.py, line" in said
        assert "returned None" in said
