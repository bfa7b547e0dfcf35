"""Small runs of every kind, made by the commands themselves, to do harm to."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from benchmarks.faults.trying import attempt

NETWORK = ("--sac.hidden-sizes", "16", "--sac.batch-size", "16")
SCREENS = ("--a3c.channels", "2", "2", "--a3c.hidden-size", "8", "--a3c.local-steps", "20")
COMMANDS: Mapping[str, tuple[str, ...]] = {  # in this order: some need others
    "explore": (
        *("explore", "PointMaze", "--steps", "300", "--seeds", "2", "--chunk-steps", "50"),
        *("--checkpoint-every", "100", "--log-every", "50", "--update-interval", "100"),
        *("--update-steps", "20", "--env-options", "max_episode_steps=50", "--workers", "0"),
        *("--replay-size", "400", "--no-figures", "--out", "explore", *NETWORK),
    ),
    "worlds": (  # four worlds for each agent, learned from while their episodes run
        *("explore", "PointMaze", "--steps", "640", "--seeds", "2", "--physics", "jax"),
        *("--envs-per-agent", "4", "--learn-from", "running", "--remember", "always"),
        *("--checkpoint-every", "128", "--log-every", "64", "--no-figures", "--out", "worlds"),
        *("--env-options", "max_episode_steps=50", "--replay-size", "800", *NETWORK),
    ),
    "on-policy": (
        *("on-policy", "Rooms-v0", "--steps", "120", "--workers", "0", "--state-dim", "3"),
        *("--checkpoint-every", "60", "--log-every", "60", "--random-seeds", "0"),
        *("--env-options", "max_episode_steps=40", "--no-figures", "--out", "on-policy", *SCREENS),
    ),
    "collect": (
        *("collect", "explore", "--dataset", "maze/tiny-v0", "--steps", "120"),
        *("--out", "datasets", "--workers", "0", "--no-entropy"),
    ),
    "offline": (
        *("offline", "maze/tiny-v0", "--root", "datasets", "--steps", "40", "--workers", "0"),
        *("--cql.hidden-sizes", "16", "--cql.batch-size", "8", "--episodes", "1"),
        *("--evaluate-every", "20", "--checkpoint-every", "20", "--no-figures"),
        *("--out", "offline"),
    ),
    "encoder": (
        *("pretrain-encoder", "Rooms-v0", "--steps", "300", "--epochs", "1"),
        *("--epoch-updates", "4", "--batch-size", "8", "--no-figures", "--out", "encoder"),
        *("--env-options", "max_episode_steps=40"),
    ),
}


def make_material(folder: Path, seconds: float = 300.0) -> Path:
    """All of them in one folder, which is taken as it is where it is complete."""
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        for name, command in COMMANDS.items():
            made = attempt(command, folder, seconds)
            if made.code != 0:
                raise ValueError(f"The material {name} could not be made.\n{made.output}")
        (folder / "complete").touch()
    return folder
