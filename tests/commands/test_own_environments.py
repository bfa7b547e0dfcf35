"""An environment of a user's own package, by `package:Env-v0`: every command finds it again in a
fresh process."""

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import gymnasium
import own_world
import pytest
from own_world import SCREEN, START, WALK

import element_rl.training.off_policy.config
import element_rl.training.off_policy.resolving
from element_rl import plots
from element_rl.acting.rollout_actor import RolloutActor, RolloutSettings
from element_rl.cli import main
from element_rl.commands.next_steps import next_steps
from element_rl.commands.training import default_folder
from element_rl.datasets.minari_files import read_dataset
from element_rl.envs.make import describe, env_maker, is_screen
from element_rl.envs.names import registered_name, registration_of, with_package
from element_rl.envs.robots import can_fall
from element_rl.evaluate.checkpoints import evaluate
from element_rl.runs.folder import RunFolder
from element_rl.studies.engine.grid import Cell
from element_rl.training.finetune import FinetuneConfig
from element_rl.training.finetune.settings import off_policy_settings
from element_rl.training.on_policy.config import OnPolicyConfig, resolved

TINY = [
    *(
        "--replay-size",
        "400",
        "--sac.hidden-sizes",
        "8",
        "--sac.batch-size",
        "8",
        "--sac.learn-start",
        "60",
    ),
    *("--chunk-steps", "20", "--random-seeds", "0", "--workers", "1", "--no-figures"),
]


@pytest.fixture(autouse=True)
def _fresh_process() -> None:
    own_world.forget()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    own_world.forget()
    out = tmp_path_factory.mktemp("own") / "run"
    plane = ["--position", "x_position", "y_position", "--bounds", "-2", "8", "-1", "9"]
    assert main(["explore", WALK, "--steps", "120", *TINY, *plane, "--out", str(out)]) == 0
    return RunFolder.open(out)


def test_the_whole_name_is_kept(finished: RunFolder) -> None:
    assert finished.config["env"] == finished.config["settings"]["env"] == WALK
    assert finished.read_summary()["env"] == WALK
    assert default_folder(WALK, "element", 0) == Path("runs/OwnWalk-v0-element-0")
    assert default_folder("ale_py:ALE/Breakout-v5", "my.py:make", 3) == Path(
        "runs/ALE-Breakout-v5-my-3"
    )


def test_coverage_map_and_trajectories(finished: RunFolder) -> None:
    summary = finished.read_summary()
    assert summary["coverage"][0] > 10
    assert int((finished.load_visits() > 0).sum()) == summary["coverage"][0]
    rows = evaluate(finished, episodes=1, workers=0)
    assert all(row["coverage"] > 1 for row in rows)
    figure = plots.density_map(finished)
    axes = next(axes for axes in figure.axes if axes.get_xlabel() == "x")
    assert axes.get_lines()[0].get_xydata()[0].tolist() == pytest.approx(START, abs=0.05)
    assert plots.trajectories(finished).axes[0].get_xlabel() == "x"


def test_a_film_is_offered_where_it_says_that_it_can_draw_itself(
    finished: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    film = f"element evaluate {shlex.quote(str(finished.path))} --video"
    registered_name(WALK)
    assert film not in next_steps(finished)
    drawing = {"render_modes": ["rgb_array"]}
    monkeypatch.setattr(sys.modules["own_world"].Walk, "metadata", drawing)
    assert film in next_steps(finished)


def test_evaluate_finetune_and_resume_find_it(finished: RunFolder, tmp_path: Path) -> None:
    run = str(finished.path)
    assert (
        main(
            [
                "evaluate",
                run,
                "--episodes",
                "1",
                "--workers",
                "1",
                "--out",
                str(tmp_path / "evaluated"),
            ]
        )
        == 0
    )
    own_world.forget()
    task, spec, _ = off_policy_settings(FinetuneConfig(finished.path), finished)
    assert (task.env, task.position, task.bounds) == (
        WALK,
        ("x_position", "y_position"),
        ((-2.0, 8.0), (-1.0, 9.0)),
    )
    assert spec.coverage_bounds == task.bounds
    own_world.forget()
    copy = tmp_path / "copy"
    shutil.copytree(finished.path, copy)
    assert main(["explore", WALK, "--resume", str(copy), "--steps", "160", "--no-figures"]) == 0
    assert RunFolder.open(copy).read_summary()["steps"] == 160


def test_collect_finds_it_and_the_dataset_names_the_package(
    finished: RunFolder, tmp_path: Path
) -> None:
    pytest.importorskip("minari")
    collected = [
        "--dataset",
        "own/walk-v0",
        "--steps",
        "60",
        "--out",
        str(tmp_path),
        "--workers",
        "0",
        "--no-entropy",
    ]
    assert main(["collect", str(finished.path), *collected]) == 0
    own_world.forget()
    dataset = read_dataset("own/walk-v0", tmp_path)
    assert dataset.env == WALK
    assert describe(WALK, **dataset.env_options).max_episode_steps == 50
    spec = gymnasium.envs.registration.EnvSpec.from_json(json.dumps(_env_spec(tmp_path)))
    own_world.forget()
    made = gymnasium.make(spec)  # as `minari.recover_environment` does
    assert type(made.unwrapped).__name__ == "Walk"


def _env_spec(root: Path) -> dict[str, Any]:
    about = json.loads(next(root.rglob("metadata.json")).read_text())
    found: dict[str, Any] = json.loads(about["env_spec"])
    return found


def test_a_run_of_an_older_version_is_resumed(finished: RunFolder, tmp_path: Path) -> None:
    """It kept no package, and knew nothing of positions."""
    out = tmp_path / "older"
    assert (
        main(
            [
                *("explore", WALK, "--reward", "random", "--steps", "60", "--position", "none"),
                *TINY,
                *("--out", str(out)),
            ]
        )
        == 0
    )
    settings = json.loads((out / "config.json").read_text())
    for name in ("position", "bounds", "cell_size"):
        del settings["settings"][name]
    for name in ("coverage_unit", "coverage_start", "coverage_of", "coverage_cells_of"):
        del settings[name]
    settings["env"] = settings["settings"]["env"] = "OwnWalk-v0"
    (out / "config.json").write_text(json.dumps(settings))
    own_world.forget()
    assert main(["explore", WALK, "--resume", str(out), "--steps", "80", "--no-figures"]) == 0
    assert RunFolder.open(out).read_summary()["steps"] == 80


def test_settings_are_resolved_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    described, made = [], []
    monkeypatch.setattr(
        element_rl.training.off_policy.resolving,
        "describe",
        _counted(element_rl.training.off_policy.resolving.describe, described),
    )
    monkeypatch.setattr(gymnasium, "make", _counted(gymnasium.make, made))
    command = [
        "explore",
        "PointMaze",
        "--reward",
        "extrinsic",
        "--steps",
        "60",
        "--env-options",
        "max_episode_steps=20",
    ]
    options = [option for option in TINY if option != "--no-figures"]
    assert main([*command, *options, "--workers", "0", "--out", str(tmp_path / "run")]) == 0
    assert len(described) == 1
    assert len(made) == 3  # one to look at, one to act in, and one to act in for the figures


def _counted(function: Any, calls: list[str]) -> Any:
    def counting(name: str, *arguments: Any, **options: Any) -> Any:
        calls.append(name)
        return function(name, *arguments, **options)

    return counting


def test_screens_too() -> None:
    config, spec = resolved(OnPolicyConfig(SCREEN))
    assert config.env == spec.name == SCREEN
    assert is_screen(SCREEN)
    settings = RolloutSettings(spec, env_maker(SCREEN, {}), 5, 8, {})
    own_world.forget()  # a worker has the registration, not the import
    arrays: Any = {}
    assert RolloutActor(settings, 0, 0, None, arrays).running.env.spec.id == "own/Screen-v0"
    named = with_package(registration_of(SCREEN), SCREEN)
    assert (named.id, named.entry_point) == (SCREEN, "own_world:Screen")
    assert describe("rooms").name == "Rooms-v0"


def test_the_package_is_no_part_of_what_a_robot_is() -> None:
    assert can_fall("gymnasium:Ant-v5")
    ant, other = describe("Ant"), describe("gymnasium:Ant")
    assert other.name == "gymnasium:Ant-v5"
    assert (other.observation_dim, other.coverage_bounds) == (
        ant.observation_dim,
        ant.coverage_bounds,
    )
    config = element_rl.training.off_policy.resolving.resolved(
        element_rl.training.off_policy.config.ExploreConfig("gymnasium:Hopper")
    )[0]
    assert (
        config.beta
        == element_rl.training.off_policy.resolving.resolved(
            element_rl.training.off_policy.config.ExploreConfig("Hopper")
        )[0].beta
    )


def test_a_module_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (tmp_path / "lying_here.py").write_text(
        "raise AttributeError(\"module 'mujoco' has no attribute\")\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert main(["explore", "lying_here:Any-v0"]) == 2
    error = capsys.readouterr().err.strip()
    assert (
        "Module 'lying_here' of environment 'Any-v0' cannot be imported: AttributeError: module "
        "'mujoco'" in error
    )
    sentence, theirs = error.split("\nIn your code:\n")
    assert "\n" not in sentence
    assert theirs.count("File") == 1


def test_cells_of_studies_keep_their_names() -> None:
    config = element_rl.training.off_policy.config.ExploreConfig("Ant-v5", reward="rnd")
    # as before there were positions
    assert Cell("Ant-v5", "rnd", config).name == "Ant-v5-rnd-f6921d15"


def test_cells_of_other_units_have_other_names() -> None:
    """On Humanoid cells from before were raw, and must not be taken for calibrated ones."""

    def name(**settings: Any) -> str:
        config = element_rl.training.off_policy.config.ExploreConfig("Humanoid-v5", **settings)
        return Cell("Humanoid-v5", "element", config).name

    assert name() == name(state_units="calibrated") != name(state_units="raw")
