"""The run that the tests here fine-tune from."""

import pytest
from car_run import written_run

from element_rl.runs import RunFolder


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return written_run(tmp_path_factory.mktemp("source") / "car")
