"""Packages whose environments need an older MuJoCo than the installed one, and what they raise.

    package             tried     newest MuJoCo   with a newer one
    dm_control          1.0.50    3.17.0          reads a field of the model that is gone
    gymnasium_robotics  1.4.2     3.11.0          takes joints for others (AssertionError): Fetch,
                                                  hands and kitchen. Its mazes need no older one

A package that reads what is not there any more raises whatever comes of it; who reads only that
cannot know what to do.
"""

from collections.abc import Iterator
from importlib import metadata

from packaging.version import Version

NEWEST = {"dm_control": "3.17.0", "gymnasium_robotics": "3.11.0"}


def needs_older_mujoco(error: BaseException) -> str | None:
    """A sentence without its full stop, where one of these packages has failed and the installed
    MuJoCo is too new for it; None elsewhere."""
    if not isinstance(error, AttributeError | AssertionError):
        return None
    package = next((name for name in reversed(list(_packages(error))) if name in NEWEST), None)
    installed = _version_of("mujoco")
    if package is None or installed is None or Version(installed) <= Version(NEWEST[package]):
        return None
    return (
        f"{package} {_version_of(package) or ''}".rstrip()
        + f" does not work with MuJoCo {installed} ({_said(error)}); "
        + f"pip install mujoco=={NEWEST[package]}"
    )


def _packages(error: BaseException) -> Iterator[str]:
    """Of the code that was running, from the outermost to where it was raised."""
    trace = error.__traceback__
    while trace is not None:
        yield str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        trace = trace.tb_next


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split()).rstrip(".")
    return f"{type(error).__name__}: {text}".rstrip(": ")
