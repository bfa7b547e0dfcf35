"""The example of a loop of one's own learns, and the files for RL Zoo mean what they say."""

import importlib
import runpy
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import stable_baselines3
import torch
import yaml
from stable_baselines3.common.callbacks import BaseCallback

from element_rl.integrations.sb3 import IntrinsicCallback, IntrinsicReplayBuffer, LogIntrinsic

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

torch.set_num_threads(1)


def test_the_loop_of_one_file_learns(monkeypatch, capsys) -> None:
    """tests/docs/test_documents.py runs all examples, with fewer steps than this one takes before
    it learns."""
    monkeypatch.setattr(sys, "argv", ["cleanrl_style_loop.py", "--steps", "1010"])
    runpy.run_path(str(EXAMPLES / "cleanrl_style_loop.py"), run_name="__main__")
    random, ours = capsys.readouterr().out.strip().splitlines()
    assert random.startswith("random actions")
    assert ours.startswith("element")


def class_by_name(name: str) -> Any:
    """As RL Zoo's `get_class_by_name`, which it offers to the text of replay_buffer_class."""
    module, _, kind = name.rpartition(".")
    return getattr(importlib.import_module(module), kind)


def callbacks_of(settings: dict[str, Any]) -> list[BaseCallback]:
    """Names, or names with keyword arguments, as RL Zoo reads them."""
    made = []
    for entry in settings.pop("callback"):
        name, arguments = next(iter(entry.items())) if isinstance(entry, dict) else (entry, {})
        made.append(class_by_name(name)(**arguments))
    return made


@pytest.mark.filterwarnings("ignore:The lifelong memory is empty")  # the run is cut short
@pytest.mark.parametrize("env", ["Ant-v5", "MountainCarContinuous-v0"])
def test_the_zoos_settings_for_sac_make_a_model(env: str) -> None:
    settings = yaml.safe_load((EXAMPLES / "rl_zoo" / "sac.yml").read_text())[env]
    (callback,) = callbacks_of(settings)
    assert isinstance(callback, LogIntrinsic)
    settings["replay_buffer_class"] = eval(
        settings["replay_buffer_class"], {"get_class_by_name": class_by_name}
    )
    steps = settings.pop("n_timesteps")
    model = stable_baselines3.SAC(
        env=gymnasium.make(env, **settings.pop("env_kwargs", {})), buffer_size=2_000, **settings
    )
    assert isinstance(model.replay_buffer, IntrinsicReplayBuffer)
    assert model.replay_buffer.bonus.total_steps == steps
    model.learn(20, callback)


@pytest.mark.filterwarnings("ignore:The lifelong memory stays empty")  # the run is cut short
def test_the_zoos_settings_for_ppo_make_a_callback() -> None:
    settings = yaml.safe_load((EXAMPLES / "rl_zoo" / "ppo.yml").read_text())["MountainCar-v0"]
    (callback,) = callbacks_of(settings)
    assert isinstance(callback, IntrinsicCallback)
    model = stable_baselines3.PPO(
        "MlpPolicy", "MountainCar-v0", n_steps=settings["n_steps"], device="cpu"
    )
    model.learn(settings["n_steps"], callback)
    assert callback.bonus is not None
    assert callback.bonus.observed == settings["n_steps"]
