"""First commands of suites on docs/suites.md, in a few random steps. Where an environment is slow
to make, as Atari and the mazes of Gymnasium-Robotics are, test_finding looks at it."""

from pathlib import Path

import mujoco
import pytest
from support.documents import ROOT, commands

from element_rl import cli
from element_rl.runs.folder import RunFolder

PAGE = ROOT / "docs" / "suites.md"
FEW = [
    *("--random-seeds", "0", "--no-figures", "--workers", "0", "--steps", "64"),
    *("--env-options", "max_episode_steps=32"),
]
COVERED = {  # how an environment begins → its package, and what its coverage counts
    "minigrid:MiniGrid-Empty": ("minigrid", [1.0, 1.0]),
    "shimmy:dm_control/walker": ("dm_control", [0.5, 0.2]),
    "MountainCar-v0": ("gymnasium", [0.02, 0.001]),
}


def command_of(env: str) -> list[str]:
    """Of the page, up to the first option: the learners' settings cost what no test needs."""
    return next(words[:2] for words in commands(PAGE) if words[1].startswith(env))


@pytest.mark.parametrize("env", list(COVERED))
@pytest.mark.filterwarnings("ignore")  # of packages that are not ours
def test_the_command_runs(env: str, tmp_path: Path) -> None:
    package, cell = COVERED[env]
    pytest.importorskip(package, exc_type=ImportError)
    if package == "dm_control" and mujoco.__version__.startswith("4"):
        assert cli.main([*command_of(env), *FEW]) == 2  # a sentence: test_versions
        return
    out = tmp_path / "run"
    assert cli.main([*command_of(env), *FEW, "--reward", "random", "--out", str(out)]) == 0
    config = RunFolder.open(out).config
    assert config["coverage_of"] == "positions"
    assert list(config.get("cell_size") or cell) == cell
