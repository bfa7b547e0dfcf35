"""Cells of a study that run side by side have an equal share of the cores each."""

import pytest

from element_rl.acting import cores
from element_rl.acting.evaluator import WORTH_PROCESSES, default_workers, workers_for


@pytest.mark.parametrize(
    ("told", "own"), [(None, 16), ("", 16), ("5", 5), ("0", 1), ("40", 16), ("many", 16)]
)
def test_a_share_is_what_one_plans_for(
    monkeypatch: pytest.MonkeyPatch, told: str | None, own: int
) -> None:
    monkeypatch.setattr(cores, "usable_cores", lambda: 16)
    monkeypatch.delenv(cores.SHARE, raising=False)
    if told is not None:
        monkeypatch.setenv(cores.SHARE, told)
    assert cores.own_cores() == own
    assert default_workers(100) == max(own - 1, 1)
    assert default_workers(1) == 1
    assert workers_for(100, WORTH_PROCESSES) == own
    assert workers_for(1, WORTH_PROCESSES) == 1
    assert workers_for(100, WORTH_PROCESSES - 1) == 0
