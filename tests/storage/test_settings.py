"""Settings that come back from JSON as they were."""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from element_rl.agents.sac import SACConfig
from element_rl.storage.files import to_json
from element_rl.storage.settings import settings_from_json
from element_rl.training.off_policy.config import ExploreConfig


@dataclass(frozen=True)
class Inner:
    widths: tuple[int, ...] = ()


@dataclass(frozen=True)
class Outer:
    folder: Path
    name: str | Path
    elsewhere: Path | None = None
    folders: tuple[Path, ...] = ()
    pairs: tuple[tuple[str, float], ...] = ()
    inner: Inner = field(default_factory=Inner)
    maybe: Inner | None = None


@pytest.mark.parametrize(
    "settings",
    [
        Outer(Path("a/b"), "c"),
        Outer(
            Path("a"),
            "c",
            Path("d"),
            (Path("e"), Path("f/g")),
            (("x", 1.5),),
            Inner((1, 2)),
            Inner((3,)),
        ),
        ExploreConfig("Ant-v5", steps=7, env_options=("a=1",), sac=SACConfig(hidden_sizes=(8, 9))),
    ],
)
def test_there_and_back(settings: object) -> None:
    text = json.dumps(to_json(dataclasses.asdict(settings)))  # type: ignore[call-overload]
    assert settings_from_json(type(settings), json.loads(text)) == settings


def test_a_setting_that_is_not_known() -> None:
    with pytest.raises(
        ValueError, match="Inner has no setting 'depth': it was written by another version"
    ):
        settings_from_json(Inner, {"depth": 3})
