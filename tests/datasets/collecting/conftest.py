"""A run to collect from, and what comes out of it when nothing is in the way."""

import pytest
from support.collecting import collected, invented_run

from element_rl.datasets.minari_files import Dataset
from element_rl.runs.folder import RunFolder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return invented_run(tmp_path_factory.mktemp("runs") / "hopper")


@pytest.fixture(scope="module")
def undisturbed(run: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return collected(run, tmp_path_factory.mktemp("undisturbed"))
