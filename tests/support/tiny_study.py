"""A study of three tiny cells. As a program, it runs them in a folder:

python tests/support/tiny_study.py OUT
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from element_rl.agents.sac import SACConfig
from element_rl.studies import coverage
from element_rl.studies.engine.grid import Cell, Scale, Study
from element_rl.studies.engine.results import Results
from element_rl.studies.engine.runner import Processes, conclude, run_cells
from element_rl.training.off_policy.config import ExploreConfig

SCALE = Scale(("PointMaze-v0",), 2, {"PointMaze-v0": 600})
STUDY = Study(
    "tiny", "Tiny", "Does it run?", {"smoke": SCALE}, lambda env, scale: CELLS, coverage.analyse
)


def tiny_cell(
    method: str, env: str = "PointMaze-v0", reward: str = "random", **settings: Any
) -> Cell:
    """A cell of a second or two: 600 steps, episodes of 50, a network of 8."""
    config = ExploreConfig(
        env,
        reward,
        **{
            "steps": 600,
            "seeds": 2,
            "replay_size": 700,
            "workers": 0,
            "random_seeds": 0,
            "chunk_steps": 20,
        }
        | settings,
        env_options=("max_episode_steps=50",),
        sac=SACConfig(hidden_sizes=(8,), batch_size=8, learn_start=100),
    )
    return Cell(env, method, config)


CELLS = [
    tiny_cell("random"),
    tiny_cell("element", reward="element", steps=1_200, checkpoint_every=100),
    tiny_cell("random, other seeds", seed=7),
]


def study(out: Path, cells: Sequence[Cell] = CELLS, together: int = 1) -> Results:
    assert run_cells(cells, out, Processes(together), lambda progress: None)
    return conclude(STUDY, "smoke", SCALE, cells, out, "element study tiny")


if __name__ == "__main__":
    study(Path(sys.argv[1]))
