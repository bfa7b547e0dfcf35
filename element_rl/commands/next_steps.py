"""What to do with a run of `explore` that is done: commands that work on it, printed at its end."""

import contextlib
import importlib.util
import re
import shlex

import gymnasium
from gymnasium.envs.registration import load_env_creator

from element_rl.runs.folder import RunFolder

# per seed, of the dataset that is proposed, or as many as the run has if that is fewer
COLLECTED_STEPS = 10_000


def say_next_steps(run: RunFolder) -> None:
    """Prints the commands, one a line, each with what it does."""
    steps = next_steps(run)
    width = max(len(command) for command in steps)
    print("What to try next:")
    for command, purpose in steps.items():
        print(
            f"  {command:<{width}}  # {purpose}"
            if width < 80
            else f"  {command}\n      # {purpose}"
        )


def next_steps(run: RunFolder) -> dict[str, str]:
    """Commands → what each does. Only those that this run, with what is installed here, can be
    given."""
    settings, path = run.config["settings"], shlex.quote(str(run.path))
    learned = settings["reward"] != "random"
    steps = {f"element report {path}": "all of it on one page"}
    if learned and _renders(settings["env"]):
        steps[f"element evaluate {path} --video"] = "act with its policies, and film the last one"
    if learned and all(importlib.util.find_spec(name) for name in ("minari", "h5py")):
        count = min(COLLECTED_STEPS, settings["steps"])
        steps[f"element collect {path} --dataset {_dataset(run)} --steps {count}"] = (
            "make a dataset of what they do"
        )
    if learned:
        steps[f"element explore --resume {path} --steps {2 * settings['steps']}"] = (
            "train for longer"
        )
    return steps


def _renders(env: str) -> bool:
    """Whether the environment says that it can draw itself."""
    with contextlib.suppress(gymnasium.error.Error, ImportError, AttributeError):
        entry_point = gymnasium.spec(env).entry_point
        made_by = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
        return "rgb_array" in getattr(made_by, "metadata", {}).get("render_modes", ())
    return False


def _dataset(run: RunFolder) -> str:
    """A Minari id after the run's folder."""
    return re.sub(r"\W+", "-", run.path.resolve().name).strip("-").lower() + "-v0"
