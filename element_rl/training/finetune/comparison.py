"""A transferred policy beside agents from scratch: what the head start was worth, in numbers, a
table and a figure.

    zero_shot_return      of the transferred policy, before it learns anything of the task
    final_return          mean over the last tenth of the steps
    area_under_curve      of the return over the steps, divided by the steps: the mean return while
                          learning
    steps_to_reach        the first logged step at which the return, a mean over the last three
                          lines, is at least the final return from scratch (mean over seeds); 0
                          where the zero-shot return is; none where it never is

A line of metrics in which no episode ended has no return; the area takes it from its neighbours.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from element_rl.runs.folder import RunFolder
from element_rl.runs.provenance import commit, hardware, versions
from element_rl.storage.files import write_json, write_text

SMOOTHED = 3  # lines of metrics in a running mean


def write_comparison(folder: Path, transfer: dict[str, Any]) -> dict[str, Any]:
    """Compare FOLDER/transferred and FOLDER/scratch, both done; the summary."""
    # here: matplotlib takes a second that a run without comparison saves
    from element_rl.plots import save_figure
    from element_rl.plots.transfer import transfer_curves

    runs = {name: RunFolder.open(folder / name) for name in ("transferred", "scratch")}
    summary = _summary(runs, transfer)
    figure = transfer_curves(runs, summary["zero_shot_return"])
    for kind in ("png", "svg"):
        save_figure(figure, folder / "figures" / f"transfer.{kind}")
    write_text(folder / "table.md", table(summary))
    write_json(folder / "summary.json", summary)  # last: it says that all is there
    return summary


def _summary(runs: dict[str, RunFolder], transfer: dict[str, Any]) -> dict[str, Any]:
    done = {name: run.read_summary() for name, run in runs.items()}
    target = _mean(done["scratch"]["extrinsic_return"])
    zero_shot = [float(value) for value in transfer["zero_shot_return"]]
    measures = {}
    for name, run in runs.items():
        steps, returns = return_curves(run, transfer["seeds"])
        head_start = zero_shot if name == "transferred" else [-np.inf] * len(zero_shot)
        measures[name] = {
            "final_return": done[name]["extrinsic_return"],
            "area_under_curve": [area_under_curve(steps, of_seed) for of_seed in returns],
            "steps_to_reach": [
                steps_to_reach(steps, of_seed, target, start)
                for of_seed, start in zip(returns, head_start, strict=True)
            ],
            "wall_seconds": done[name]["wall_seconds"],
        }
    return {
        **{
            name: transfer[name]
            for name in ("transferred_from", "env", "env_options", "seeds", "transferred_step")
        },
        "steps": done["transferred"]["steps"],
        "zero_shot_return": zero_shot,
        "return_to_reach": target,
        **measures,
        "mean": {
            "zero_shot_return": _mean(zero_shot),
            **{
                name: {key: _mean(m[key]) for key in m if key != "wall_seconds"}
                for name, m in measures.items()
            },
        },
        "versions": versions(),
        "commit": commit(),
        "hardware": hardware(),
    }


def return_curves(
    run: RunFolder, seeds: Sequence[int]
) -> tuple[Int[np.ndarray, " T"], Float[np.ndarray, "P T"]]:
    """Logged steps, and the task return of each seed; NaN where none of its episodes ended."""
    metrics = run.read_metrics()
    steps, when = np.unique(metrics["step"], return_inverse=True)
    returns = np.full((len(seeds), len(steps)), np.nan)
    returns[np.searchsorted(seeds, metrics["seed"]), when] = metrics["extrinsic_return"]
    return steps, returns


def area_under_curve(
    steps: Int[np.ndarray, " T"], returns: Float[np.ndarray, " T"]
) -> float | None:
    """Each line stands for the steps since the line before it."""
    has_return = np.isfinite(returns)
    if not has_return.any():
        return None
    filled = np.interp(steps, steps[has_return], returns[has_return])
    return float(np.average(filled, weights=np.diff(steps, prepend=0)))


def steps_to_reach(
    steps: Int[np.ndarray, " T"],
    returns: Float[np.ndarray, " T"],
    target: float | None,
    zero_shot: float = -np.inf,
) -> int | None:
    """When the running mean of the return is first at least `target`."""
    if target is None:
        return None
    if zero_shot >= target:
        return 0
    for last in range(len(steps)):
        window = returns[max(last + 1 - SMOOTHED, 0) : last + 1]
        if np.isfinite(window).any() and np.nanmean(window) >= target:
            return int(steps[last])
    return None


def table(summary: dict[str, Any]) -> str:
    """One line per seed and one of means, in Markdown."""
    target = summary["return_to_reach"]
    reach = "never reached" if target is None else number_text(target)
    measures = {
        "final_return": "final return",
        "area_under_curve": "mean return over training",
        "steps_to_reach": f"steps to a return of {reach}",
    }
    columns = {
        f"{words}: {run}": summary[run][name]
        for name, words in measures.items()
        for run in ("transferred", "scratch")
    }
    header = ["seed", "from step", "zero-shot", *columns]
    lines = [header, ["---:"] * len(header)]
    for index, seed in enumerate(summary["seeds"]):
        numbers = [summary["zero_shot_return"][index], *(c[index] for c in columns.values())]
        step = f"{summary['transferred_step'][index]:,}"
        lines.append([str(seed), step, *map(number_text, numbers)])
    zero_shot = number_text(_mean(summary["zero_shot_return"]))
    lines.append(["mean", "", zero_shot, *map(_mean_text, columns.values())])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _mean(values: Sequence[float | int | None]) -> float | None:
    """None where any is missing: a mean over those that got there would flatter."""
    present = [value for value in values if value is not None]
    return float(np.mean(present)) if present and len(present) == len(values) else None


def number_text(value: float | int | None) -> str:
    """Small numbers with two digits after the point: a return may be between 0 and 1."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:,.2f}"


def _mean_text(values: Sequence[float | int | None]) -> str:
    number = sum(value is not None for value in values)
    all_there = number == len(values)
    return number_text(_mean(values)) if all_there else f"{number} of {len(values)} seeds"
