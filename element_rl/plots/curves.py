"""What a run logged, over its environment steps.

A line is the mean over seeds, the band around it runs from the lowest seed to the highest. Runs of
several environments have a panel for each, and one legend: a reward looks the same in all panels.
"""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from element_rl.plots.legends import draw_legend, draw_shared_legend
from element_rl.plots.lines import (
    BAND,
    OPACITY,
    POINTS,
    by_seed,
    draw_ends,
    draw_seeds,
    finish_axes,
    is_logged,
    thousands,
)
from element_rl.plots.style import (
    COLOURS,
    QUIET,
    REFERENCE_LINE,
    STYLE,
    Run,
    add_note,
    environment_of,
    figure_title,
    metrics_of,
    opened,
    panel_grid,
    run_lines,
    steps_text,
    whole_ticks,
    wrapped_title,
)
from element_rl.runs.folder import RunError, RunFolder
from element_rl.runs.visits import counted

# columns reward_… that are no term of a sum
OTHER_REWARDS = (
    *("reward_episodic", "reward_lifelong", "reward_mean"),
    *("reward_extrinsic", "reward_learned"),  # with --extrinsic-weight, or of the task in a sum
)
PANEL = 3.4  # inches, the width of one environment of several

FEW = 7  # lines up to which they are drawn as broad as ever


@matplotlib.rc_context(STYLE)
def coverage_curve(runs: Sequence[Run]) -> Figure:
    """Unique cells visited over environment steps, against what a random policy visits."""
    folders = opened(runs)
    figure, panels = _panels(folders, heights=(3.8,))
    _draw_runs(panels[0], folders, "coverage")
    _draw_random_policies(panels[0], folders, "coverage")
    for env, axes in panels[0].items():
        nouns = dict.fromkeys(counted(folder.config) for folder in _of_environment(folders, env))
        axes.set_ylabel(" or ".join(_visited(noun) for noun in nouns))
        count_from_zero(axes)
    _finish_panels(figure, panels, folders)
    return figure


def _visited(noun: str) -> str:
    return f"unique {noun} visited" if noun.endswith("cells") else f"{noun} seen"


@matplotlib.rc_context(STYLE)
def entropy_curve(runs: Sequence[Run]) -> Figure:
    """Episodic entropy, and below it the episode length that bounds it by its logarithm."""
    folders = opened(runs)
    figure, panels = _panels(folders, heights=(3.0, 2.2))
    _draw_runs(panels[0], folders, "episodic_entropy")
    _draw_random_policies(panels[0], folders, "episodic_entropy")
    _draw_runs(panels[1], folders, "episode_length")
    for above, below in zip(panels[0].values(), panels[1].values(), strict=True):
        above.set_ylabel("episodic entropy (bits)")
        below.set_ylabel("episode length (steps)")
        count_from_zero(below)
    _finish_panels(figure, panels, folders)
    return figure


@matplotlib.rc_context(STYLE)
def reward_terms(run: Run) -> Figure:
    """Mean episodic and lifelong reward, or the terms of a sum of rewards, and below them the
    number of remembered states."""
    (folder,) = opened([run])
    metrics = metrics_of(folder)
    terms = {"episodic": "reward_episodic", "lifelong": "reward_lifelong"}
    terms = _terms_of_a_sum(metrics) or terms
    drawn = {label: column for label, column in terms.items() if is_logged(metrics, column)}
    if not drawn:
        raise RunError(
            f"The run {folder.path} has logged no reward_episodic and no reward_lifelong."
        )
    with_memory = is_logged(metrics, "memory_size")
    figure = Figure(figsize=(6.0, 5.2 if with_memory else 3.8), layout="constrained")
    above, *below = figure.subplots(2 if with_memory else 1, 1, sharex=True, squeeze=False)[:, 0]
    for (label, column), colour in zip(drawn.items(), COLOURS, strict=False):
        draw_seeds(above, *by_seed(metrics, column), {"color": colour}, label)
    above.set_ylabel("mean reward")
    for axes in below:
        style = {"color": COLOURS[2]}
        draw_seeds(axes, *by_seed(metrics, "memory_size"), style, "lifelong memory")
        axes.set_ylabel("remembered states")
        thousands(axes.yaxis)
        count_from_zero(axes)
    finish(figure, above, *below, title=figure_title([folder], with_reward=True), legend=[above])
    return figure


def _terms_of_a_sum(metrics: Mapping[str, np.ndarray]) -> dict[str, str]:
    """The columns of the terms by their labels; nothing where the reward is no sum."""
    logged = [name for name in metrics if name.startswith("reward_")]
    terms = [
        name for name in logged if name not in OTHER_REWARDS and not name.endswith("_deviation")
    ]
    task = [name for name in logged if name == "reward_extrinsic"] if terms else []
    return {name.removeprefix("reward_"): name for name in (*terms, *task)}


def random_policy(folders: Sequence[RunFolder], quantity: str) -> tuple[float, int | None] | None:
    """What a random policy reached and in how many steps, from the first run that knows it."""
    for folder in folders:
        reference = folder.read_summary().get("random_policy") or {}
        values = [value for value in reference.get(quantity) or [] if value is not None]
        if values:
            return float(np.mean(values)), reference.get("steps")
    return None


def random_policy_label(steps: Sequence[int | None]) -> str:
    """Of the lines in one figure that stand for random policies, each after so many steps."""
    numbers = sorted({number for number in steps if number})
    ends = dict.fromkeys([*numbers[:1], *numbers[-1:]])
    after = " to ".join(steps_text(number) for number in ends)
    return f"random policy, {after} steps" if after else "random policy"


def count_from_zero(axes: Axes) -> None:
    """A vertical axis that counts: whole numbers, from 0 to 1 at least."""
    whole_ticks(axes.yaxis)
    axes.set_ylim(0.0, max(axes.get_ylim()[1], 1.0))


def finish(figure: Figure, *panels: Axes, title: str, legend: Sequence[Axes] = ()) -> None:
    """Axes from zero, one title, one legend (of these panels, or of all), steps written as 500k."""
    finish_axes(panels)
    panels[0].set_title(wrapped_title(title, figure.get_figwidth()))
    _add_band_note(figure, [title], panels)
    draw_legend(figure, legend or panels)


def _add_band_note(figure: Figure, titles: Sequence[str], panels: Sequence[Axes]) -> None:
    if any("seeds" in title for title in titles):
        has_points = any(axes.child_axes for axes in panels)
        add_note(figure, f"{BAND} {POINTS}" if has_points else BAND)


def _panels(
    folders: Sequence[RunFolder], heights: Sequence[float]
) -> tuple[Figure, list[dict[str, Axes]]]:
    """For each height a panel for each environment; those of one environment stand in a column."""
    envs = list(dict.fromkeys(environment_of(folder) for folder in folders))
    rows, abreast = panel_grid(len(envs))
    several = (PANEL * abreast, 0.8 * sum(heights) * rows)
    size = several if len(envs) > 1 else (6.0, sum(heights))
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(
        rows * len(heights), abreast, squeeze=False, height_ratios=[*heights] * rows
    )
    columns = [list(part[:, place]) for part in np.split(grid, rows) for place in range(abreast)]
    for place, column in enumerate(columns):
        for axes in column[1:]:
            axes.sharex(column[0])
        for axes in column[:-1]:
            axes.tick_params(labelbottom=False)
        for axes in column:
            axes.set_visible(place < len(envs))
    return figure, [dict(zip(envs, row, strict=False)) for row in zip(*columns, strict=True)]


def _draw_runs(panels: Mapping[str, Axes], folders: Sequence[RunFolder], column: str) -> None:
    """One line per run; those that did not log the column are named as such."""
    logged = [is_logged(metrics_of(folder), column) for folder in folders]
    if not any(logged):
        paths = ", ".join(str(folder.path) for folder in folders)
        raise RunError(f"No {column} has been logged in {paths}.")
    lines = run_lines(folders)
    for env, axes in panels.items():
        missing, ends = [], []
        here = [place for place, folder in enumerate(folders) if environment_of(folder) == env]
        crowded = len(here) > FEW
        for place in here:
            label, style = lines[place]
            style = style | ({"linewidth": 1.2} if crowded else {})
            if logged[place]:
                steps, values = by_seed(metrics_of(folders[place]), column)
                opacity = 0.08 if crowded else OPACITY
                ends.append(draw_seeds(axes, steps, values, style, label, opacity))
            elif len(panels) == 1:
                axes.plot([], [], label=f"{label} (not logged)", **style)
            else:
                missing.append(label)
        draw_ends(axes, ends)
        if missing:
            text = f"not logged: {', '.join(missing)}"
            axes.text(0.98, 0.04, text, transform=axes.transAxes, ha="right", size=8, color=QUIET)


def _draw_random_policies(
    panels: Mapping[str, Axes], folders: Sequence[RunFolder], quantity: str
) -> None:
    """In each panel a dashed line at what a random policy reached there."""
    reached = {env: random_policy(_of_environment(folders, env), quantity) for env in panels}
    present = {env: found for env, found in reached.items() if found}
    label = random_policy_label([steps for _, steps in present.values()])
    for env, (value, _) in present.items():
        panels[env].axhline(value, color=QUIET, label=label, **REFERENCE_LINE)


def _finish_panels(
    figure: Figure, rows: Sequence[Mapping[str, Axes]], folders: Sequence[RunFolder]
) -> None:
    envs = list(rows[0])
    if len(envs) == 1:
        finish(figure, *(row[envs[0]] for row in rows), title=figure_title(folders))
        return
    titles = {env: figure_title(_of_environment(folders, env)) for env in envs}
    for env, title in titles.items():
        finish_axes([row[env] for row in rows])
        rows[0][env].set_title(wrapped_title(title, PANEL))
    panels = [axes for row in rows for axes in row.values()]
    _add_band_note(figure, list(titles.values()), panels)
    draw_shared_legend(figure, panels)


def _of_environment(folders: Sequence[RunFolder], env: str) -> list[RunFolder]:
    return [folder for folder in folders if environment_of(folder) == env]
