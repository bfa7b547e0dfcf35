"""Does the wheel work where only the wheel is? Builds it, installs it with every Python that is
named into an environment of its own, and uses it in an empty folder.

    make wheel-check PYTHONS="python3.11 python3.12 python3.13"
    python tests/support/check_wheel.py python3.12

What is used: the version, `element explore PointMaze-v0` with figures and a film (the maze needs no
OpenGL), and `element doctor`. A Python that is missing is said and fails nothing; a step that fails
is shown with what it printed. Needs the extra dev (hatchling), and an index to install from.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

CHECKOUT = Path(__file__).parents[2]
EXPLORE = (
    "element explore PointMaze-v0 --steps 2000 --sac.hidden-sizes 16 16 --env-options "
    "max_episode_steps=100 --video --out run"
)
STEPS = ("element --version", EXPLORE, "element report run", "element doctor")
LEFT = ("config.json", "summary.json", "report.html", "figures/density_map.png")  # in run/
TELL = """
import importlib.metadata, platform
versions = [f"{name} {importlib.metadata.version(name)}" for name in ("jax", "numpy", "mujoco")]
print(f"Python {platform.python_version()}", *versions, sep=", ")
"""


class StepError(Exception):
    """A command that failed, and what it printed."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Install the wheel elsewhere, and use it.")
    parser.add_argument("pythons", nargs="+", help="interpreters, by name or by path")
    failed = False
    with TemporaryDirectory() as folder:
        wheel = build(Path(folder))
        print(f"{wheel.name}", flush=True)
        for python in parser.parse_args().pythons:
            if shutil.which(python) is None:
                print(f"{python}: NOT TRIED, there is none here", flush=True)
                continue
            try:
                with TemporaryDirectory() as place:
                    print(f"{python}: works with {use(python, wheel, Path(place))}", flush=True)
            except StepError as error:
                print(f"{python}: FAILED\n{error}", flush=True)
                failed = True
    return int(failed)


def build(folder: Path) -> Path:
    step([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], CHECKOUT)
    return next(folder.glob("*.whl"))


def use(python: str, wheel: Path, place: Path) -> str:
    """Installs and uses the wheel; the versions that came with it."""
    scripts, empty = place / "venv" / "bin", place / "empty"
    empty.mkdir()
    step([python, "-m", "venv", str(place / "venv")], empty)
    inside = str(scripts / "python")
    pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    step([inside, *pip, "-c", str(CHECKOUT / "constraints.txt"), str(wheel)], empty)
    for command in STEPS:
        name, *arguments = command.split()
        step([str(scripts / name), *arguments], empty)
    missing = [name for name in LEFT if not (empty / "run" / name).exists()]
    missing += [] if list(empty.glob("run/evaluation/*_beside_random.mp4")) else ["the film"]
    if missing:
        raise StepError(f"{EXPLORE}\nleft no {', '.join(missing)}")
    return step([inside, "-c", TELL], empty).strip()


def step(command: list[str], folder: Path) -> str:
    """What a command prints; without the paths that would lead it back to the checkout."""
    surroundings = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=surroundings | {"JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise StepError(f"{' '.join(command)}\n{done.stdout}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
