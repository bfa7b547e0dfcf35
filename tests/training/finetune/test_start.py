"""Which checkpoint each agent begins with, and in which environment it is judged."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.car_run import ACTIONS, EPISODE, SMALL, start

from element_rl.runs.folder import RunFolder
from element_rl.training.finetune import FinetuneConfig, finetune
from element_rl.training.finetune.settings import off_policy_settings
from element_rl.training.off_policy.config import ExploreConfig, config_from_json, parsed_options
from element_rl.training.off_policy.launch import create_run


def test_each_agent_takes_its_own_best_checkpoint(source: RunFolder) -> None:
    """340 was not planned: the run was stopped there."""
    transfer = start(source)
    assert [entry["step"] for entry in transfer["candidates"]] == [100, 200, 300, 400]
    for entry in transfer["candidates"]:
        costs = [-0.1 * action**2 * EPISODE for action in ACTIONS[entry["step"]]]
        np.testing.assert_allclose(entry["return"], costs, rtol=1e-4)
        assert entry["returns"].shape == (2, 2)
    assert transfer["transferred_step"] == [200, 300]
    np.testing.assert_allclose(
        transfer["zero_shot_return"], [-0.1 * 0.1**2 * 20, -0.1 * 0.05**2 * 20], rtol=1e-3
    )


def test_more_checkpoints_than_candidates(source: RunFolder) -> None:
    assert [entry["step"] for entry in start(source, candidates=2)["candidates"]] == [100, 400]
    assert [entry["step"] for entry in start(source, candidates=1)["candidates"]] == [400]


def test_last_and_numbered(source: RunFolder) -> None:
    assert start(source, checkpoint="last")["transferred_step"] == [400, 400]
    assert start(source, checkpoint="340")["transferred_step"] == [340, 340]
    assert start(source, checkpoint="last")["candidates"] == []


def test_a_policy_is_judged_by_the_task_as_it_is(tmp_path: Path) -> None:
    """Exploring had falls not end the robot's episodes; the task does, unless told otherwise."""
    run = create_run(
        ExploreConfig("Hopper-v5", steps=100, env_options=("max_episode_steps=50",), sac=SMALL),
        tmp_path / "run",
    )
    assert (
        parsed_options(config_from_json(run.config["settings"]))["terminate_when_unhealthy"]
        is False
    )
    shapes = {"weight_0": (1, 11, 8), "bias_0": (1, 8), "weight_1": (1, 8, 6), "bias_1": (1, 6)}
    policy = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    run.save_checkpoint(100, policy, None, {}, {})

    def options(*given: str) -> dict[str, Any]:
        return parsed_options(
            off_policy_settings(FinetuneConfig(run.path, env_options=given), run)[0]
        )

    assert options() == {"max_episode_steps": 50, "terminate_when_unhealthy": True}
    assert options("terminate_when_unhealthy=false")["terminate_when_unhealthy"] is False
    assert options("max_episode_steps=70")["max_episode_steps"] == 70
    with pytest.raises(
        ValueError, match=r"take 11 observations and give 3 actions, but Hopper-v5 .* has 12 and 3"
    ):
        options("exclude_current_positions_from_observation=false")

    def complaint(*given: str) -> str:
        with pytest.raises(ValueError) as caught:  # noqa: PT011 (its text is what the caller looks at)
            finetune(FinetuneConfig(run.path, replay="kept", env_options=given), tmp_path / "out")
        assert not (tmp_path / "out").exists()
        return str(caught.value)

    assert complaint().endswith(
        "explored with terminate_when_unhealthy=false and the task has "
        "terminate_when_unhealthy=true: take --replay fresh, "
        "explore with --env-options terminate_when_unhealthy=true, or add --env-options "
        "terminate_when_unhealthy=false here."
    )
    same = "terminate_when_unhealthy=false"
    assert "explored without ctrl_cost_weight and the task has ctrl_cost_weight=0.5" in complaint(
        same, "ctrl_cost_weight=0.5"
    )
    assert "found no experience in" in complaint(same)
