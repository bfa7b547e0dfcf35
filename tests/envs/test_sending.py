"""What makes an environment goes to other processes, however the environment was registered."""

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

from element_rl.envs.make import EnvMaker, env_maker

NAME = "LocalMaze-v0"
WITHIN = f'''
import gymnasium


def register():
    def make(**options):  # as Shimmy does: it cannot be pickled
        return gymnasium.make("PointMaze-v0", **options).unwrapped

    gymnasium.register("{NAME}", entry_point=make, max_episode_steps=7)


register()
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "local_mazes.py").write_text(WITHIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "local_mazes"
    gymnasium.registry.pop(NAME, None)
    sys.modules.pop("local_mazes", None)


def test_a_function_within_a_function_is_registered_again(module: str) -> None:
    sent = pickle.dumps(env_maker(f"{module}:{NAME}", {}))
    gymnasium.registry.pop(NAME)  # as in a new process
    sys.modules.pop(module)
    maker: EnvMaker = pickle.loads(sent)
    env = maker()
    assert env.spec is not None
    assert env.spec.max_episode_steps == 7
    env.close()


def test_other_registrations_go_as_they_are() -> None:
    maker = env_maker("PointMaze-v0", {"max_episode_steps": 5})
    sent: EnvMaker = pickle.loads(pickle.dumps(maker))
    assert (sent.registration, sent.options) == (maker.registration, maker.options)
