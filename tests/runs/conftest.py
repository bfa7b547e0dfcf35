"""An empty run."""

from pathlib import Path

import pytest
from support.known_checkpoints import CONFIG

from element_rl.runs.folder import RunFolder


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", CONFIG)
