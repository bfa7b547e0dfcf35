"""Cells keep their names when settings are added, so that studies find what they have trained."""

import dataclasses

import pytest

from element_rl.studies import coverage, offline, transfer
from element_rl.studies.engine.grid import Scale, Study

# As written at commit b3fbe4e. Another name makes a cell of everybody's studies new: a setting that
# is added belongs into `grid.NEWER`.
NAMES = (
    (coverage.STUDY, "Ant-v5", "element (paper)", "Ant-v5-element-87704099"),
    (coverage.STUDY, "Hopper-v5", "element", "Hopper-v5-element-771deb90"),
    (coverage.STUDY, "Ant-v5", "rnd", "Ant-v5-rnd-2084457f"),
    (coverage.STUDY, "Rooms-v0", "element", "Rooms-v0-element-21ab5d7d"),
    (coverage.STUDY, "Rooms-v0", "rnd", "Rooms-v0-rnd-711dde94"),
    (transfer.STUDY, "Hopper-v5", "element", "Hopper-v5-finetune-element-531b45f0"),
    (offline.STUDY, "Hopper-v5", "element", "Hopper-v5-collect-element-3d7024f6"),
    (offline.STUDY, "Hopper-v5", "element", "Hopper-v5-offline-element-3a24d2cb"),
)


def test_another_estimator_is_another_cell() -> None:
    """Cells of ELEMENT on Ant that were trained with the paper's estimator are not taken for those
    of today."""
    cells = coverage.STUDY.cells_of("Ant-v5", small(coverage.STUDY))
    assert "Ant-v5-element-952e5ce0" not in [cell.name for cell in cells]


@pytest.mark.parametrize(("study", "env", "method", "name"), NAMES)
def test_cells_keep_their_names(study: Study, env: str, method: str, name: str) -> None:
    cells = study.cells_of(env, small(study))
    assert name in [cell.name for cell in cells if cell.method == method]


def small(study: Study) -> Scale:
    """The scale `small`, with Rooms-v0 as its screen."""
    scale = study.scales["small"]
    assert scale.screens is not None
    rooms = dataclasses.replace(scale.screens, envs=("Rooms-v0",), steps={"Rooms-v0": 300})
    return dataclasses.replace(scale, screens=rooms)
