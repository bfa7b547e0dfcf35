"""What `element offline` and `element finetune` propose: each branch from numbers written by
hand."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from element_rl.commands.finetuned_steps import finetuned_steps
from element_rl.commands.measured_steps import noise_of, trend_of
from element_rl.commands.next_steps import say_steps
from element_rl.commands.offline import Offline
from element_rl.commands.offline_steps import offline_steps
from element_rl.commands.options import read_options
from element_rl.runs.folder import RunFolder
from element_rl.runs.launch import create_run
from element_rl.training.finetune.config import FinetuneConfig
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.offline.config import OfflineConfig

STEADY = [10.0, 11.0] * 4  # differences of 1 from line to line: chance
RISING = [10.0, 11.0, 10.0, 11.0, 12.0, 11.0, 22.0, 21.0]
POLICY = {"weight_0": np.zeros((1, 1, 1), np.float32), "bias_0": np.zeros((1, 1), np.float32)}


def offline_run(
    folder: Path,
    curve: Sequence[float] = STEADY,
    algorithm: str = "cql",
    value: float = 1.0,
    checkpoints: Sequence[int] = (80,),
    settings: dict[str, Any] | None = None,
    **summary: Any,
) -> RunFolder:
    """A run of two agents, both with this curve, whose data have returns of 5, at best 8, and
    discounted ones from 0 to 3."""
    config = OfflineConfig(("some/data-v0",), algorithm=algorithm, steps=80, **(settings or {}))  # type: ignore[arg-type]
    columns = ("step", "seed", "extrinsic_return", "q_mean")
    run = create_run("offline", config, folder, columns, {"env": "Some-v0"})
    run.append_metrics(
        [
            {"step": 10 * (line + 1), "seed": seed, "extrinsic_return": mean, "q_mean": value}
            for line, mean in enumerate(curve)
            for seed in summary.get("seeds", (0, 1))
        ]
    )
    for step in checkpoints:
        run.save_checkpoint(step, POLICY, None, {}, {"step": step})
    numbers: dict[str, Any] = {
        "env": "Some-v0",
        "env_of_datasets": True,
        "discrete": False,
        "steps": 80,
        "seeds": [0, 1],
        "extrinsic_return": [curve[-1]] * 2,
        "behaviour_return": [5.0, 5.0],
        "best_behaviour_return": [8.0, 8.0],
        "value_range": [[0.0, 3.0]] * 2,
    }
    run.write_summary(numbers | summary)
    return run


def purposes(run: RunFolder) -> list[str]:
    return list(offline_steps(run).values())


def the_step(run: RunFolder, words: str) -> tuple[str, str]:
    """The one proposal that says this."""
    ((command, purpose),) = (
        (command, text) for command, text in offline_steps(run).items() if words in text
    )
    return command, purpose


def asked(command: str) -> OfflineConfig:
    """The settings that a proposed command has, read as the command reads them."""
    words = shlex.split(command)
    assert words[:2] == ["element", "offline"]
    return read_options(Offline, words[2:], "element offline").config


def test_what_differs_by_chance_is_no_trend() -> None:
    assert noise_of(np.array(STEADY)) == pytest.approx(1.4826)
    assert noise_of(np.array([3.0])) == 0.0
    steady, rising = trend_of(np.array(STEADY)), trend_of(np.array(RISING))
    assert steady == (10.5, 10.5, False)
    # (12 + 11) / 2 and (22 + 21) / 2; the median difference is still 1
    assert rising == (11.5, 21.5, True)
    assert trend_of(np.array(RISING[:7])) is None
    assert trend_of(np.full(8, 4.0)) == (4.0, 4.0, False)


def test_a_return_that_rises_asks_for_more_updates(tmp_path: Path) -> None:
    run = offline_run(tmp_path / "run", RISING)
    command, purpose = the_step(run, "still rises")
    assert command == f"element offline --resume {run.path} --steps 160"
    assert "(11.50 in the third quarter of the updates, 21.50 in the last)" in purpose


def test_iql_is_begun_again_since_its_rate_has_fallen_to_0(tmp_path: Path) -> None:
    run = offline_run(tmp_path / "run", RISING, algorithm="iql")
    command, _ = the_step(run, "over which the learning rate falls")
    assert asked(command) == OfflineConfig(("some/data-v0",), algorithm="iql", steps=160)
    assert command.endswith(f"--out {run.path}-longer")


def test_a_return_that_stays_is_looked_at_more_closely(tmp_path: Path) -> None:
    run = offline_run(tmp_path / "run")
    command, purpose = the_step(run, "no longer rises")
    assert command == f"element evaluate {run.path} --deterministic --episodes 50"
    assert "10.50 in the third quarter of the updates, 10.50 in the last" in purpose
    assert len(offline_steps(run)) == 1  # above the data, within their values, two seeds


def test_an_earlier_checkpoint_that_was_clearly_better_is_named(tmp_path: Path) -> None:
    falling = [10.0, 40.0, 41.0, 40.0, 39.0, 40.0, 12.0, 11.0]
    run = offline_run(tmp_path / "run", falling, checkpoints=(40, 80))
    command, purpose = the_step(run, "checkpoint of update 40")
    assert "had a return of 40, the last has 11" in purpose
    assert f"evaluate {run.path} --checkpoint 40 --deterministic --episodes 50" in command
    assert not any("rises" in text for text in purposes(run))
    near = offline_run(tmp_path / "near", [*STEADY[:7], 9.0], checkpoints=(40, 80))
    assert not any("checkpoint" in text for text in purposes(near))  # 11 and 9: chance


@pytest.mark.parametrize(
    ("algorithm", "setting", "held"),
    [("cql", "conservative_weight", 10.0), ("td3-bc", "alpha", 1.25), ("iql", "expectile", 0.6)],
)
def test_values_above_all_that_the_data_show_are_held_back(
    tmp_path: Path, algorithm: str, setting: str, held: float
) -> None:
    run = offline_run(tmp_path / "run", algorithm=algorithm, value=3.5)
    command, purpose = the_step(run, "holds values back")
    assert "mean value 3.50 is above the highest discounted return in the data, 3" in purpose
    settings = getattr(asked(command), algorithm.replace("-", "_"))
    assert getattr(settings, setting) == pytest.approx(held)
    within = offline_run(tmp_path / "within", algorithm=algorithm, value=2.9)
    assert not any("holds values back" in text for text in purposes(within))


def test_less_than_the_data_earn_asks_for_cloning_them(tmp_path: Path) -> None:
    """With the settings of the run, but for those of its algorithm."""
    given = {"reward_scale": 0.1, "seeds": 2, "standardise": False, "root": "a folder"}
    run = offline_run(
        tmp_path / "run", settings=given, extrinsic_return=[4.0, 4.5], env_of_datasets=False
    )
    command, purpose = the_step(run, "cloning")
    assert (
        "2 of 2 agents earn less than the data's episodes (4.25 against 5 in the mean)" in purpose
    )
    assert asked(command) == OfflineConfig(("some/data-v0",), algorithm="bc", steps=80, **given)
    half = offline_run(tmp_path / "half", extrinsic_return=[4.0, 6.0])
    assert not any("cloning" in text for text in purposes(half))


def test_cloning_that_stays_below_the_best_of_the_data_asks_for_values(tmp_path: Path) -> None:
    """The data have 5 in the mean and 8 at best: below 6.5."""
    nothing: dict[str, Any] = {"value_range": [None, None], "algorithm": "bc"}
    run = offline_run(tmp_path / "run", extrinsic_return=[6.0, 6.0], **nothing)
    command, purpose = the_step(run, "values actions")
    assert "cloning earns 6, the best episode in the data 8" in purpose
    assert asked(command).algorithm == "td3-bc"
    choices = offline_run(
        tmp_path / "choices", extrinsic_return=[6.0, 6.0], discrete=True, **nothing
    )
    assert asked(the_step(choices, "values actions")[0]).algorithm == "cql"
    near = offline_run(tmp_path / "near", extrinsic_return=[7.0, 7.0], **nothing)
    assert not any("cloning" in text for text in purposes(near))


def test_one_agent_asks_for_five(tmp_path: Path) -> None:
    lists = ("extrinsic_return", "behaviour_return", "best_behaviour_return")
    alone = {"seeds": [0], **{name: [9.0] for name in lists}, "value_range": [[0.0, 3.0]]}
    run = offline_run(tmp_path / "run", **alone)
    command, purpose = the_step(run, "luck")
    assert purpose.startswith("1 agent has learned")
    assert asked(command).seeds == 5


def test_where_nobody_acted_that_comes_first(tmp_path: Path) -> None:
    run = offline_run(tmp_path / "run", extrinsic_return=[None, None])
    assert list(offline_steps(run)) == [f"element evaluate {run.path} --deterministic"]
    nowhere = offline_run(tmp_path / "nowhere", extrinsic_return=[None, None], env="")
    assert offline_steps(nowhere) == {}


def finetuned(
    folder: Path, curve: Sequence[float], kind: str = "explore", compare: bool = True
) -> tuple[FinetuneConfig, Path]:
    """A fine-tuning of two agents, transferred and from scratch."""
    config = FinetuneConfig(Path("runs/source"), steps=800, compare=compare)
    homes = [folder / "transferred", folder / "scratch"] if compare else [folder]
    for home in homes:
        explored = ExploreConfig("Some-v0")
        run = create_run(kind, explored, home, ("step", "seed", "extrinsic_return"), {})
        run.append_metrics(
            [
                {"step": 100 * (line + 1), "seed": seed, "extrinsic_return": mean}
                for line, mean in enumerate(curve)
                for seed in (0, 1)
            ]
        )
    return config, folder


def outcome(
    zero_shot: float, transferred: float, scratch: float, scratch_area: float = 0.0
) -> dict[str, Any]:
    ends = {"transferred": transferred, "scratch": scratch}
    areas = {"transferred": 1.0, "scratch": scratch_area}
    measures = {
        name: {"final_return": [end] * 2, "area_under_curve": [areas[name]] * 2}
        for name, end in ends.items()
    }
    mean = {name: {"final_return": end} for name, end in ends.items()}
    numbers = {"seeds": [0, 1], "steps": 800, "zero_shot_return": [zero_shot] * 2}
    return {**numbers, **measures, "mean": mean, "extrinsic_return": [transferred] * 2}


def test_a_policy_that_was_lost_is_held_by_an_anchor(tmp_path: Path) -> None:
    config, folder = finetuned(tmp_path / "run", STEADY)
    ((command, purpose),) = finetuned_steps(config, folder, outcome(9.0, 5.0, 4.0)).items()
    assert command == (
        "element finetune runs/source --steps 800 --anchor 1 --anchor-halflife 80 "
        f"--out {folder}-anchored"
    )
    assert "2 of 2 agents can do less now (5) than the policy they began with (9)" in purpose
    kept = finetuned_steps(config, folder, outcome(5.0, 9.0, 4.0))
    assert kept == {}


def test_no_anchor_where_there_is_one_or_none_can_be(tmp_path: Path) -> None:
    config, folder = finetuned(tmp_path / "alone", STEADY, compare=False)
    lost = outcome(9.0, 5.0, 4.0)
    assert len(finetuned_steps(config, folder, lost)) == 1
    anchored = FinetuneConfig(config.run, steps=800, compare=False, anchor=1.0)
    assert finetuned_steps(anchored, folder, lost) == {}
    screens = finetuned(tmp_path / "screens", STEADY, "on-policy")
    assert finetuned_steps(*screens, lost) == {}


def test_agents_from_scratch_that_are_ahead_in_both_go_on(tmp_path: Path) -> None:
    config, folder = finetuned(tmp_path / "run", STEADY)
    ((command, purpose),) = finetuned_steps(config, folder, outcome(1.0, 5.0, 8.0, 2.0)).items()
    assert command == f"element explore --resume {folder}/scratch --steps 1600"
    assert "with 2 of 2 seeds agents from scratch earn more, at the end (8 against 5)" in purpose
    # ahead at the end only
    assert finetuned_steps(config, folder, outcome(1.0, 5.0, 8.0, 0.5)) == {}


def test_a_return_on_the_task_that_rises_goes_on(tmp_path: Path) -> None:
    for kind in ("explore", "on-policy"):
        config, folder = finetuned(tmp_path / kind, RISING, kind)
        ((command, purpose),) = finetuned_steps(config, folder, outcome(1.0, 9.0, 2.0)).items()
        assert command == f"element {kind} --resume {folder}/transferred --steps 1600"
        assert "(11.50 in the third quarter of the steps, 21.50 in the last)" in purpose


def test_nothing_is_said_where_there_is_nothing_to_say(capsys: pytest.CaptureFixture[str]) -> None:
    say_steps({})
    assert capsys.readouterr().out == ""
    say_steps({"element x": "why"})
    assert capsys.readouterr().out == "What to try next:\n  element x  # why\n"
