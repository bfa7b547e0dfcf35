"""The run that the tests here fine-tune from, and what is said of mistakes."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.car_run import written_run

from element_rl.commands.finetune import main
from element_rl.runs.folder import RunFolder


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return written_run(tmp_path_factory.mktemp("source") / "car")


@pytest.fixture
def complaint(tmp_path: Path) -> Callable[..., str]:
    """The one sentence that a wrong command line gets."""

    def complained(*arguments: str) -> str:
        with pytest.raises(ValueError) as caught:  # noqa: PT011 (its text is what the caller looks at)
            main([*arguments, "--out", str(tmp_path / "out")])
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return complained
