"""The figure of an encoder's training: its losses, and what its states know of positions. It shows
no frame."""

from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from element_rl.plots.style import (
    COLOURS,
    QUIET,
    REFERENCE_LINE,
    STYLE,
    Run,
    literal,
    metrics_of,
    opened,
    whole_ticks,
    wrapped_title,
)
from element_rl.runs.folder import RunError
from element_rl.storage.files import read_arrays

NAMES = {"trained": "trained", "untrained": "untrained", "pca": "PCA of pixels"}
PANEL = 3.3  # inches
HEADROOM = 1.5  # height of the panel of losses over the highest of them: above it stands the legend
POINTS = 2_000  # frames drawn per scatter


@matplotlib.rc_context(STYLE)
def encoder_figure(run: Run) -> Figure:
    """Losses per epoch, R² of three kinds of states, and predicted against true positions of
    held-out frames."""
    (folder,) = opened([run])
    summary, metrics = folder.read_summary(), metrics_of(folder)
    if not summary or "training_loss" not in metrics:
        raise RunError(f"The run {folder.path} has trained no encoder to the end: resume it.")
    probe: dict[str, Any] = summary["probe"]
    axes_names = list(probe["trained"]) if probe else []
    panels = 1 + bool(probe) + len(axes_names)
    figure = Figure(figsize=(PANEL * panels, 3.2), layout="constrained")
    all_axes = np.atleast_1d(figure.subplots(1, panels))
    _draw_losses(all_axes[0], metrics, summary)
    if probe:
        _draw_scores(all_axes[1], probe, axes_names)
        predicted, _ = read_arrays(folder.path / "probe.safetensors")
        for column, name in enumerate(axes_names):
            _draw_scatter(all_axes[2 + column], predicted, column, name, probe)
    return figure


def _draw_losses(axes: Axes, metrics: dict[str, np.ndarray], summary: dict[str, Any]) -> None:
    axes.plot(metrics["step"], metrics["training_loss"], color=COLOURS[0], label="training")
    axes.plot(metrics["step"], metrics["validation_loss"], color=COLOURS[1], label="validation")
    axes.axhline(summary["chance_loss"], color=QUIET, label="chance, log B", **REFERENCE_LINE)
    axes.axvline(summary["best_epoch"], ymax=1 / HEADROOM, color=QUIET, linewidth=0.8)
    axes.set_title(wrapped_title(f"{literal(summary['env'])}: loss", PANEL))
    axes.set_xlabel("epoch (line: the one kept)")
    axes.set_ylabel("nats")
    axes.set_ylim(0, HEADROOM * axes.dataLim.y1)
    whole_ticks(axes.xaxis)
    axes.legend(loc="upper right")


def _draw_scores(axes: Axes, probe: dict[str, Any], axes_names: list[str]) -> None:
    width = 0.8 / len(probe)
    for index, (name, scores) in enumerate(probe.items()):
        values = [np.nan if scores[axis] is None else scores[axis] for axis in axes_names]
        places = np.arange(len(axes_names)) + (index - (len(probe) - 1) / 2) * width
        axes.bar(
            places, np.maximum(values, 0), width * 0.92, color=COLOURS[index], label=NAMES[name]
        )
        for place, value in zip(places, values, strict=True):
            if np.isfinite(value):
                axes.annotate(
                    f"{value:.2f}".replace("-", "−"),
                    (place, max(value, 0)),
                    ha="center",
                    va="bottom",
                    size=7.5,
                )
    axes.set_xticks(range(len(axes_names)), axes_names)
    axes.set_ylim(0, 1.3)
    axes.set_yticks(np.linspace(0, 1, 6))
    axes.grid(axis="x", visible=False)
    axes.set_title("R² of positions, held-out")
    axes.legend(
        loc="upper center", ncols=len(probe), columnspacing=0.8, handlelength=1.0, fontsize=7.5
    )


def _draw_scatter(
    axes: Axes, predicted: dict[str, np.ndarray], column: int, name: str, probe: dict[str, Any]
) -> None:
    truth = predicted["positions"][:, column]
    chosen = np.linspace(0, len(truth) - 1, min(len(truth), POINTS)).astype(np.int64)
    for index, kind in reversed(list(enumerate(probe))):
        if kind != "pca":
            axes.plot(
                truth[chosen],
                predicted[kind][chosen, column],
                ".",
                color=COLOURS[index],
                markersize=2.2,
                alpha=0.5,
            )
    ends = [truth.min(), truth.max()]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    margin = 0.15 * (ends[1] - ends[0]) + 1e-6
    axes.set_ylim(ends[0] - margin, ends[1] + margin)
    axes.set_title(f"predicted {name}")
    axes.set_xlabel(f"true {name}")
