"""The parity of MuJoCo Warp measures what it says, on a robot without contacts."""

import numpy as np

from benchmarks import parity_warp
from element_rl.worlds.warp_worlds import warp_worlds

ROBOT = "InvertedPendulum-v5"


def test_errors_of_a_walk_begin_with_those_of_its_first_step() -> None:
    walks = parity_warp.c_walks(ROBOT, seeds=2, steps=1)
    worlds = warp_worlds(ROBOT, {})
    one_step = parity_warp.one_step_errors(worlds, walks)
    np.testing.assert_array_equal(one_step, parity_warp.walk_errors(worlds, walks))
    assert 0 < one_step.max() < 1e-5
    assert parity_warp.c_steps(ROBOT, walks, parity_warp.NEWTON).max() == 0.0


def test_tables_are_made() -> None:
    settings = parity_warp.Settings(robots=(ROBOT,), seeds=2, steps=2, page=False)
    assert ROBOT in parity_warp.main(settings)
