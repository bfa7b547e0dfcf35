"""How an on-policy run went: how far, for how much reward, and how sure the policy became."""

from collections.abc import Mapping
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from element_rl.plots.curves import finish, random_policy, random_policy_label
from element_rl.plots.lines import by_seed, draw_seeds, is_logged
from element_rl.plots.planes import axis_labels
from element_rl.plots.style import (
    QUIET,
    REFERENCE_LINE,
    STYLE,
    Run,
    figure_title,
    line_style,
    metrics_of,
    opened,
)
from element_rl.runs.folder import RunError


@matplotlib.rc_context(STYLE)
def learning_curves(run: Run) -> Figure:
    """Task return, furthest place, the reward that is learned from and the policy's entropy, over
    environment steps."""
    (folder,) = opened([run])
    metrics = metrics_of(folder)
    drawn = {
        column: label
        for column, label in _panels(folder.config).items()
        if is_logged(metrics, column)
    }
    if not drawn:
        raise RunError(f"The run {folder.path} has logged nothing to draw.")
    figure = Figure(figsize=(6.0, 1.3 + 1.7 * len(drawn)), layout="constrained")
    panels = list(figure.subplots(len(drawn), 1, sharex=True, squeeze=False)[:, 0])
    for axes, (column, label) in zip(panels, drawn.items(), strict=True):
        reward = str(folder.config.get("reward", "run"))
        draw_seeds(axes, *by_seed(metrics, column), line_style(0), reward)
        if column in ("extrinsic_return", "furthest") and (
            found := random_policy([folder], column)
        ):
            value, steps = found
            axes.axhline(value, color=QUIET, label=random_policy_label([steps]), **REFERENCE_LINE)
        axes.set_ylabel(label)
    finish(figure, *panels, title=figure_title([folder], with_reward=True))
    return figure


def _panels(config: Mapping[str, Any]) -> dict[str, str]:
    """What is drawn, from top to bottom: columns of the metrics, and the labels of their axes."""
    along = axis_labels(config)[0] if config.get("coverage_axes") else "place"
    return {
        "extrinsic_return": "return\nper episode",
        "furthest": f"furthest\n{along}",
        "reward_mean": "mean reward\nper step",
        "policy_entropy": "policy entropy\n(nats)",
    }
