"""What to do with a run that is done: commands that work on it, printed at its end.

`next_steps` has those of `explore`; `explored_steps`, `offline_steps` and `finetuned_steps` those
that follow from what runs have measured."""

import contextlib
import importlib.util
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import gymnasium
from gymnasium.envs.registration import load_env_creator

from element_rl.commands.explored_steps import explored_steps
from element_rl.envs.names import registration_of
from element_rl.runs.folder import RunFolder

# per seed, of the dataset that is proposed, or as many as the run has if that is fewer
COLLECTED_STEPS = 10_000


def say_next_steps(run: RunFolder) -> None:
    """Prints what can be done with a run of `explore`."""
    say_steps(next_steps(run))


def say_steps(steps: Mapping[str, str]) -> None:
    """Prints commands, each with what it does: beside it, or below where the terminal is too narrow
    for that. Nothing where there are none."""
    if not steps:
        return
    width = max(map(len, steps))
    lines = [f"  {command:<{width}}  # {purpose}" for command, purpose in steps.items()]
    if max(map(len, lines)) > shutil.get_terminal_size().columns:
        lines = [f"  {command}\n      # {purpose}" for command, purpose in steps.items()]
    print("What to try next:", *lines, sep="\n")


def next_steps(run: RunFolder) -> dict[str, str]:
    """Commands → what each does. Only those that this run, with what is installed here, can be
    given."""
    settings, path = run.config["settings"], shlex.quote(str(run.path))
    element = element_word()
    learned, steps_done = settings["reward"] != "random", run.read_summary()["steps"]
    steps = {
        f"{element} report {path}": "all of it on one page",
        f"{element} watch {path} --open": "play it back in a browser; also while a run trains",
    }
    if learned and _renders(settings["env"]):
        steps[f"{element} evaluate {path} --video"] = "act with its policies, and film the last one"
    if learned and all(importlib.util.find_spec(name) for name in ("minari", "h5py")):
        count = min(COLLECTED_STEPS, steps_done)
        steps[f"{element} collect {path} --dataset {_dataset(run)} --steps {count}"] = (
            "make a dataset of what they do"
        )
    steps |= explored_steps(run, element)
    if learned:
        steps[f"{element} explore --resume {path} --steps {2 * steps_done}"] = "train for longer"
    return steps


def element_word() -> str:
    """The command as it can be pasted: by its path where it was called by that and is not on the
    PATH, as by `make explore`."""
    called = Path(sys.argv[0])
    if called.name == "element" and shutil.which("element") is None:
        return shlex.quote(sys.argv[0])
    return "element"


def _renders(env: str) -> bool:
    """Whether the environment says that it can draw itself."""
    with contextlib.suppress(gymnasium.error.Error, ImportError, AttributeError):
        entry_point = registration_of(env).entry_point
        made_by = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
        return "rgb_array" in getattr(made_by, "metadata", {}).get("render_modes", ())
    return False


def _dataset(run: RunFolder) -> str:
    """A Minari id after the run's folder."""
    return re.sub(r"\W+", "-", run.path.resolve().name).strip("-").lower() + "-v0"
