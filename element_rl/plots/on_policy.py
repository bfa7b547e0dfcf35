"""How an on-policy run went: how far, for how much reward, and how sure the policy became."""

import matplotlib
from matplotlib.figure import Figure

from element_rl.plots.curves import _draw_random_policy, _draw_seeds, _finish, _is_logged
from element_rl.plots.style import COLOURS, STYLE, Run, figure_title, metrics_of, opened
from element_rl.runs import RunError

PANELS = {
    "extrinsic_return": "return of an episode",
    "furthest": "furthest place",
    "reward_mean": "mean reward",
    "policy_entropy": "policy entropy (nats)",
}


@matplotlib.rc_context(STYLE)
def learning_curves(run: Run) -> Figure:
    """Task return, furthest place, the reward that is learned from and the policy's entropy, over environment steps."""
    (folder,) = opened([run])
    metrics = metrics_of(folder)
    drawn = {column: label for column, label in PANELS.items() if _is_logged(metrics, column)}
    if not drawn:
        raise RunError(f"The run {folder.path} has logged nothing to draw.")
    figure = Figure(figsize=(6.0, 1.3 + 1.7 * len(drawn)), layout="constrained")
    panels = list(figure.subplots(len(drawn), 1, sharex=True, squeeze=False)[:, 0])
    for axes, (column, label), colour in zip(panels, drawn.items(), COLOURS, strict=False):
        _draw_seeds(axes, metrics, column, colour, "run")
        if column in ("extrinsic_return", "furthest"):
            _draw_random_policy(axes, [folder], column)
        axes.set_ylabel(label)
    _finish(*panels, title=figure_title([folder], with_reward=True))
    return figure
