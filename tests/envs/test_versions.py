"""What is said where a package needs an older MuJoCo."""

import pytest

from element_rl.envs import versions
from element_rl.envs.make import make_env
from element_rl.envs.versions import needs_older_mujoco

VERSIONS = {"mujoco": "4.0.0", "dm_control": "1.0.50"}


def raised(package: str, code: str) -> Exception:
    """What this code raises, as if it stood in a module of that package."""
    try:
        exec(code, {"__name__": f"{package}.within"})
    except Exception as error:
        return error
    raise AssertionError


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "_version_of", VERSIONS.get)


def test_the_sentence_names_both_versions_and_the_one_to_install() -> None:
    error = raised("dm_control", "raise AttributeError(\"'MjModel' has no attribute 'x'.\")")
    assert needs_older_mujoco(error) == (
        "dm_control 1.0.50 does not work with MuJoCo 4.0.0 (AttributeError: 'MjModel' has no "
        "attribute 'x'); pip install mujoco==3.17.0"
    )
    error = raised("gymnasium_robotics", "assert 1 == 2")
    assert needs_older_mujoco(error) == (
        "gymnasium_robotics does not work with MuJoCo 4.0.0 (AssertionError); "
        "pip install mujoco==3.11.0"
    )


def test_other_errors_and_other_packages_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert needs_older_mujoco(raised("dm_control", "raise ValueError('no task')")) is None
    assert needs_older_mujoco(raised("somewhere", "raise AttributeError('x')")) is None
    monkeypatch.setitem(VERSIONS, "mujoco", "3.17.0")  # as new as it may be
    assert needs_older_mujoco(raised("dm_control", "raise AttributeError('x')")) is None


def test_fetch_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gymnasium_robotics")
    mujoco = pytest.importorskip("mujoco")
    if mujoco.__version__ < "3.12":
        pytest.skip("works with this MuJoCo")
    with pytest.raises(ValueError, match=r"does not work with MuJoCo .*; pip install mujoco==3.11"):
        make_env("gymnasium_robotics:FetchReach-v4")
