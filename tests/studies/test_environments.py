"""What differs between environments of vectors and of frames stands in one table."""

from pathlib import Path

import pytest

from element_rl import studies
from element_rl.runs.folder import RunFolder
from element_rl.studies.engine.environments import (
    FRAMES,
    VECTORS,
    EnvKind,
    describe_environment,
    kind_of_environment,
    kind_of_run,
)
from element_rl.training.offline import OfflineConfig


def test_kinds_of_environments_and_of_runs(tmp_path: Path) -> None:
    assert kind_of_environment("PointMaze-v0") is VECTORS
    assert kind_of_environment("Rooms-v0") is FRAMES
    assert kind_of_environment("mario") is FRAMES  # whether or not it is installed
    assert describe_environment("rooms").name == "Rooms-v0"
    assert kind_of_run(RunFolder.create(tmp_path / "a", {"env": "Ant-v5"})) is VECTORS
    assert kind_of_run(RunFolder.create(tmp_path / "b", {"on_policy": True})) is FRAMES


@pytest.mark.parametrize(("kind", "env"), [(VECTORS, "PointMaze-v0"), (FRAMES, "Rooms-v0")])
def test_the_table_names_settings_that_there_are(kind: EnvKind, env: str) -> None:
    for settings in ({"reward": "rnd", **kind.baseline_settings}, kind.printed_form):
        config = kind.config(env, **settings)
        assert all(getattr(config, name) == value for name, value in settings.items())
    assert hasattr(kind.config(env), kind.learner)
    assert hasattr(kind.config(env), "encoder") == kind.has_encoder
    assert hasattr(OfflineConfig(("any",)), kind.offline_learner)


def test_one_module_asks_which_kind_it_is() -> None:
    folder = Path(studies.__file__).parent
    asking = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if "is_screen(" in path.read_text() or '"on_policy"' in path.read_text()
    }
    assert asking == {"engine/environments.py"}
