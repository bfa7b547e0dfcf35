"""The options of trackers, which all commands that train share, and whether what they ask for is
installed."""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Name = Literal["wandb", "trackio", "mlflow"]
NAMES: tuple[str, ...] = get_args(Name)  # of the trackers, of their extras and of their packages
PROJECT = "element-rl"


@dataclass(frozen=True)
class Tracking:
    """Where a run is sent to while it trains."""

    # Trackers to send the run to, besides the files for TensorBoard; docs/trackers.md.
    # (default: none)
    track: tuple[Name, ...] = ()
    # Project of the trackers, in MLflow the experiment.
    # (default: element-rl, unless WANDB_PROJECT or MLFLOW_EXPERIMENT_NAME says otherwise)
    track_project: str | None = None


NOT_TRACKED = Tracking()


def require_installed(names: Sequence[str]) -> None:
    """Refuses trackers whose packages are not there."""
    missing = [name for name in dict.fromkeys(names) if not is_installed(name)]
    if missing:
        raise ValueError(
            f"--track {' '.join(missing)} needs a package that is not installed: pip install "
            f"'element-rl[{','.join(missing)}]'."
        )


def is_installed(name: str) -> bool:
    """Whether a tracker's package is there. A folder of its name, such as the one that wandb writes
    its files to, is none."""
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None
