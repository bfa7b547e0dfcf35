"""What `element explore` proposes about the task: each branch from numbers written by hand."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from element_rl.commands.explored_steps import explored_steps
from element_rl.commands.next_steps import next_steps
from element_rl.commands.options import read_options
from element_rl.runs.folder import RunFolder
from element_rl.runs.launch import create_run
from element_rl.training.finetune.config import FinetuneConfig
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.resolving import resolved


def explored(
    folder: Path,
    returns: Sequence[float] = (0.0, 0.0, 0.0),
    best: float | None = 0.0,
    chance: float | None = 0.0,
    **settings: Any,
) -> RunFolder:
    """A run of one agent, with these returns in its log, and these best episodes of its own and of
    a random policy."""
    config = resolved(ExploreConfig(**{"env": "PointMaze-v0", "steps": 300} | settings)).config
    columns = ("step", "seed", "extrinsic_return")
    run = create_run("explore", config, folder, columns, {"env": config.env})
    run.append_metrics(
        [
            {"step": 100 * (line + 1), "seed": 0, "extrinsic_return": value}
            for line, value in enumerate(returns)
        ]
    )
    random = {"random_policy": {"best_return": [chance]}} if chance is not None else {}
    run.write_summary({"steps": 300, "best_return": [best]} | random)
    return run


def test_a_task_that_never_paid_is_explored_beside(tmp_path: Path) -> None:
    options = ("max_episode_steps=100",)
    run = explored(tmp_path / "run", reward="extrinsic", env_options=options)
    ((command, why),) = explored_steps(run, "element").items()
    assert why.startswith("every episode paid 0: look for what pays")
    words = shlex.split(command)
    assert words[:2] == ["element", "explore"]
    config = read_options(ExploreConfig, words[2:], "element explore")
    assert (config.env, config.reward, config.extrinsic_weight) == ("PointMaze-v0", "element", 1.0)
    assert (config.steps, config.seeds, config.env_options) == (300, 1, options)
    assert command in next_steps(run)


@pytest.mark.parametrize(
    ("returns", "settings"),
    [
        ((0.0, 1.0, 0.0), {"reward": "extrinsic"}),  # it did pay
        ((0.0,), {"reward": "extrinsic"}),  # one line says nothing
        ((float("nan"), float("nan")), {"reward": "extrinsic"}),  # no episode has ended
        ((0.0, 0.0), {"reward": "random"}),
        ((0.0, 0.0), {"extrinsic_weight": 1.0}),  # it learns the task already
        ((0.0, 0.0), {"reward": "element+extrinsic"}),
        ((0.0, 0.0), {}),  # nothing was found
    ],
)
def test_where_nothing_follows_nothing_is_proposed(
    tmp_path: Path, returns: tuple[float, ...], settings: dict[str, Any]
) -> None:
    assert explored_steps(explored(tmp_path / "run", returns, **settings), "element") == {}


def test_what_an_explorer_has_found_is_learned_from_there(tmp_path: Path) -> None:
    run = explored(tmp_path / "run", best=58.04, chance=-32.5)
    ((command, why),) = explored_steps(run, "element").items()
    assert why == "learn the task: its best episode paid 58.04, the best of a random policy -32.5"
    words = shlex.split(command)
    config = read_options(FinetuneConfig, words[2:], "element finetune")
    assert (config.steps, config.checkpoint, config.replay) == (300, "last", "kept")


def test_experience_of_ignored_falls_is_not_the_task_s(tmp_path: Path) -> None:
    lying = explored(tmp_path / "lying", best=500.0, env="Hopper-v5")
    (command,) = explored_steps(lying, "element")
    assert "--replay" not in command
    ending = explored(tmp_path / "ending", best=500.0, env="Hopper-v5", falls="end")
    (command,) = explored_steps(ending, "element")
    assert "--replay kept" in command


@pytest.mark.parametrize(("best", "chance"), [(None, 0.0), (1.0, None), (1.0, 1.0), (0.0, 1.0)])
def test_without_a_better_episode_than_chance_s_nothing_is_proposed(
    tmp_path: Path, best: float | None, chance: float | None
) -> None:
    assert explored_steps(explored(tmp_path / "run", best=best, chance=chance), "element") == {}
