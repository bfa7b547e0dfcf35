"""What of a run's folder is sent when the run is done: settings, metrics, summary, figures, films,
what was evaluated, and of every checkpoint the policies and visits. Not what only a resumed run
needs: the replay may have gigabytes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from element_rl.storage.files import read_json
from element_rl.tracking.interface import Files

SENT = (
    *("config.json", "metrics.csv", "summary.json", "transfer.json", "table.md"),
    *("*.safetensors", "*.mp4", "figures/*", "evaluation/*"),
    "checkpoints/step_*/*",  # files; `resume` is a folder
)
NO_RESULTS = ("seeds", "versions", "hardware")  # entries of a summary with other numbers


def files_of(folder: Path, more: Path | None, step: int) -> Files:
    """What is to be sent of a run that is done; `more` is a folder with figures and a summary about
    it."""
    sent = sent_files(folder)
    also = {} if more is None else {f"comparison/{name}": p for name, p in sent_files(more).items()}
    sent |= also
    summary = folder / "summary.json"
    return Files(
        step=step,
        images={_shown(name): path for name, path in sent.items() if path.suffix == ".png"},
        videos={_shown(name): path for name, path in sent.items() if path.suffix == ".mp4"},
        files=sent,
        results=results_of(read_json(summary)) if summary.exists() else {},
    )


def sent_files(folder: Path) -> dict[str, Path]:
    """Files of a run by their paths in its folder. What a link leads to is another's."""
    found = {
        path.relative_to(folder).as_posix(): path
        for pattern in SENT
        for path in sorted(folder.glob(pattern))
    }
    return {
        name: path
        for name, path in found.items()
        if path.is_file() and not path.is_symlink() and not path.name.startswith(".")
    }


def results_of(summary: Mapping[str, Any], prefix: str = "final/") -> dict[str, float]:
    """Numbers of a summary; of those of each seed the mean."""
    results: dict[str, float] = {}
    for name, value in summary.items():
        if isinstance(value, Mapping) and name not in NO_RESULTS:
            results |= results_of(value, f"{prefix}{name}/")
        elif name not in NO_RESULTS:
            numbers = [x for x in (value if isinstance(value, list) else [value]) if _is_number(x)]
            results |= {prefix + name: float(np.mean(numbers))} if numbers else {}
    return results


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(name: str) -> str:
    """figures/coverage.png → figures/coverage"""
    return name.rpartition(".")[0]
