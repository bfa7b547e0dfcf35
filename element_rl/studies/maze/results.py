"""Results of the maze: how deep agents get, how long they stay in shallow dead ends, and what
shallow and deep cells are worth.

maze_command_outcome   `element maze`: run, measure, and write results, tables, figures and the page
maze_results           the numbers, curves and maps of a run
"""

import datetime
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Num
from matplotlib.figure import Figure

from element_rl.envs.maze import MAZE, SHALLOW, shallow_dead_ends
from element_rl.plots import save_both
from element_rl.plots.maze import MazeRow, maze_figure
from element_rl.runs.provenance import commit, hardware, hardware_text, versions, versions_text
from element_rl.storage.files import to_json
from element_rl.studies.engine.results import CellRecord, Curves, Frame, Map, Results, Series, Table
from element_rl.studies.engine.statistics import (
    curve_with_interval,
    mean_and_std,
    stratified_bootstrap,
)
from element_rl.studies.engine.tables import improvement_table
from element_rl.studies.maze import MazeConfig, MazeOutcome, Watch, run_maze
from element_rl.studies.report import write_everything

LAST = 20  # episodes at the end over which agents are measured
VISIT_EPISODES = 5  # up to a snapshot, whose visits are shown
SMOOTHED = 5  # episodes; a single one says little
QUESTION = (
    "Which cells of a maze does each reward pay for as training goes on, and how deep do agents go "
    "that have it alone? The paper finds that the lifelong reward traps agents in dead ends near "
    "the start, and the episodic one leads to the depth."
)
EPISODIC = "episodic"
LABELS = {
    "episodic": "episodic\n$r_{\\mathrm{ep}}$",
    "lifelong": "lifelong\n$r_{\\,\\ell}$",
    "both": "both\n$r_{\\mathrm{ep}} + \\beta\\, r_{\\,\\ell}$",
    "random": "random\npolicy",
}


def maze_command_outcome(
    config: MazeConfig,
    out: Path,
    watch: Watch = lambda done, total: None,
    command: str = "element maze",
) -> Results:
    """Runs the maze and writes results.json, tables/, figures/ and report.html into `out`."""
    outcome = run_maze(config, watch)
    results = maze_results(outcome, command)
    write_everything(results, out)
    if set(config.rewards) != {"random"}:
        save_both(draw_maze(outcome), out / "figures", "maze")
    return results


def maze_results(outcome: MazeOutcome, command: str = "element maze") -> Results:
    """Everything the maze has to show."""
    config = outcome.config
    steps, share = config.episodes * config.steps, outcome.seconds / len(config.rewards)
    return Results(
        study="maze",
        title="How rewards are assigned: a 20 × 20 maze",
        question=QUESTION,
        scale="paper" if (config.episodes, config.steps) == (300, 700) else "small",
        command=command,
        cells=tuple(
            CellRecord(
                f"maze-{name}",
                "maze",
                name,
                config.seeds,
                steps,
                "done",
                round(share, 1),
                first_seed=config.first_seed,
            )
            for name in config.rewards
        ),
        findings=_findings(outcome),
        notes=_notes(config),
        tables=(_agents_table(outcome), *_comparison(outcome), _rewards_table(outcome)),
        curves=tuple(_curves(outcome)),
        maps=tuple(_maps(outcome)),
        settings={"maze": to_json(config)},
        provenance={
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "commit": commit(),
            "versions": versions_text(versions()),
            "hardware": hardware_text(hardware()),
            "seconds": round(outcome.seconds, 1),
        },
    )


def depth_reached(outcome: MazeOutcome, name: str) -> Float[np.ndarray, "P E"]:
    """The depth of the deepest cell of each episode."""
    depth = np.where(outcome.visits[name] > 0, MAZE.depth[None, None, :], 0)
    return depth.max(axis=2).astype(np.float64)


def dead_end_share(outcome: MazeOutcome, name: str) -> Float[np.ndarray, "P E"]:
    """The share of each episode's steps that end in a shallow dead end."""
    return outcome.visits[name][:, :, shallow_dead_ends(MAZE)].sum(axis=2) / outcome.config.steps


def mean_reward(
    outcome: MazeOutcome, name: str, cells: Bool[np.ndarray, " N"], episode: int
) -> Float[np.ndarray, " P"]:
    """The mean reward after an episode of those of the cells that an agent has visited, of 1; NaN
    if there are none."""
    return _mean_of_finite(_scaled_rewards(outcome, name)[:, episode - 1, cells], axis=1)


def draw_maze(outcome: MazeOutcome) -> Figure:
    """The paper's figure: rewards and visits at the snapshots, a row per reward."""
    rows = [
        MazeRow(
            LABELS[name],
            np.stack([_grid(values) for values in _reward_maps(outcome, name)]),
            np.stack([_grid(values) for values in _visit_maps(outcome, name)]),
        )
        for name in _paid(outcome)
    ]
    x, y = MAZE.position[MAZE.start].astype(int).tolist()
    return maze_figure(rows, _labels(outcome), np.isnan(_grid(MAZE.depth)), (x, y))


def _scaled_rewards(outcome: MazeOutcome, name: str) -> Float[np.ndarray, "P E N"]:
    """Rewards as shares of the largest possible one, so that the sum of two can be compared with
    one alone."""
    largest = 1.0 + outcome.config.lifelong_weight if name == "both" else 1.0
    return outcome.rewards[name] / largest


def _reward_maps(outcome: MazeOutcome, name: str) -> list[Float[np.ndarray, " N"]]:
    """At each snapshot the mean over those seeds that have visited the cell; NaN where none has."""
    worth = _scaled_rewards(outcome, name)
    return [_mean_of_finite(worth[:, moment - 1], axis=0) for moment in outcome.config.moments]


def _mean_of_finite(values: Float[np.ndarray, "P N"], axis: int) -> Float[np.ndarray, " M"]:
    """The mean without NaN; NaN where there is nothing else."""
    present = np.isfinite(values)
    number = present.sum(axis=axis)
    return np.where(
        number > 0, np.where(present, values, 0.0).sum(axis=axis) / np.maximum(number, 1), np.nan
    )


def _visit_maps(outcome: MazeOutcome, name: str) -> list[Float[np.ndarray, " N"]]:
    """At each snapshot the share of the steps of the last few episodes, all seeds together; NaN
    where nobody was."""
    maps = []
    for moment in outcome.config.moments:
        visits = outcome.visits[name][:, max(0, moment - VISIT_EPISODES) : moment].sum(axis=(0, 1))
        maps.append(np.where(visits > 0, visits / visits.sum(), np.nan))
    return maps


def _grid(values: Num[np.ndarray, " N"]) -> Float[np.ndarray, "X Y"]:
    """Values of cells in the plan, NaN in walls."""
    grid = np.full(MAZE.size, np.nan)
    x, y = MAZE.position.astype(int).swapaxes(0, 1)
    grid[x, y] = values
    return grid


def _agents_table(outcome: MazeOutcome) -> Table:
    rows = []
    for name in outcome.config.rewards:
        depth = depth_reached(outcome, name)[:, -LAST:].mean(axis=1)
        estimate = stratified_bootstrap([depth])
        mean, deviation = mean_and_std(depth)
        dead = dead_end_share(outcome, name)[:, -LAST:].mean()
        cells = (outcome.visits[name].sum(axis=1) > 0).sum(axis=1).mean()
        entropy = outcome.entropy[name][:, -LAST:].mean()
        spread = "" if np.isnan(deviation) else f" ± {deviation:.1f}"
        interval = f"{estimate.value:.1f} ({estimate.low:.1f}–{estimate.high:.1f})"
        cells = int(cells) if float(cells).is_integer() else round(float(cells), 1)
        measured = (f"{dead:.0%}", cells, round(float(entropy), 2))
        rows.append((name, f"{mean:.1f}{spread}", interval, *measured))
    columns = (
        "reward",
        "depth reached",
        "IQM (95 %)",
        "steps in shallow dead ends",
        "cells ever seen",
        "episode entropy (nats)",
    )
    note = (
        f"Depth: steps from the start to the deepest cell of an episode, of {MAZE.depth.max()}. "
        f"Mean ± deviation over {outcome.config.seeds} seeds; interquartile mean with its "
        f"bootstrap interval. A shallow dead end is less than {SHALLOW} steps deep and on no "
        "shortest way to a deeper cell."
    )
    title = f"How deep agents go in their last {LAST} episodes"
    return Table("agents", title, columns, tuple(rows), note)


def _comparison(outcome: MazeOutcome) -> list[Table]:
    """The episodic reward against the others, where it was run."""
    depth: dict[str, np.ndarray] = {
        name: depth_reached(outcome, name)[:, -LAST:].mean(axis=1)
        for name in outcome.config.rewards
    }
    if EPISODIC not in depth or len(depth) < 2:
        return []
    title = "Does the episodic reward lead deeper?"
    return [improvement_table("improvement", title, {"maze": depth}, ours=EPISODIC)]


def _rewards_table(outcome: MazeOutcome) -> Table:
    moments = outcome.config.moments
    rows = []
    for name in _paid(outcome):
        for label, cells in _regions().items():
            means = [_finite_mean(mean_reward(outcome, name, cells, moment)) for moment in moments]
            rounded = (None if mean is None else round(mean, 3) for mean in means)
            rows.append((name, label, *rounded))
    return Table(
        "rewards",
        "What the visited cells of each region are worth",
        ("reward", "cells", *_labels(outcome)),
        tuple(rows),
        "Mean over the visited cells, then over the seeds that have visited any; 1 is the largest "
        "possible reward.",
    )


def _paid(outcome: MazeOutcome) -> list[str]:
    """The rewards that were run, without the random policy, which has none."""
    return [name for name in outcome.config.rewards if name != "random"]


def _labels(outcome: MazeOutcome) -> list[str]:
    return [f"episode {moment}" for moment in outcome.config.moments]


def _regions() -> Mapping[str, Bool[np.ndarray, " N"]]:
    dead = shallow_dead_ends(MAZE)
    shallow = MAZE.depth < SHALLOW
    return {"shallow dead ends": dead, "shallow, on the way": shallow & ~dead, "deep": ~shallow}


def _finite_mean(values: Float[np.ndarray, " P"]) -> float | None:
    return float(np.mean(values[np.isfinite(values)])) if np.isfinite(values).any() else None


def _curves(outcome: MazeOutcome) -> list[Curves]:
    rewards = outcome.config.rewards
    depth = {name: depth_reached(outcome, name) for name in rewards}
    dead_ends = {name: dead_end_share(outcome, name) for name in rewards}
    note = (
        f"Interquartile mean over seeds of the mean of {SMOOTHED} episodes; band: 95 % bootstrap "
        "interval; points: every seed."
    )
    return [
        Curves(
            quantity,
            title,
            "episode",
            unit,
            tuple(_series(name, values.astype(np.float64)) for name, values in measured.items()),
            note,
            counts=quantity == "depth",
        )
        for quantity, title, unit, measured in (
            ("depth", "Depth reached", "steps from the start", depth),
            ("dead_ends", "Steps in shallow dead ends", "share of the steps", dead_ends),
            ("entropy", "Entropy of an episode", "nats", outcome.entropy),
        )
    ]


def _series(name: str, values: Float[np.ndarray, "P E"]) -> Series:
    width = min(SMOOTHED, values.shape[1])
    ends = np.arange(width, values.shape[1] + 1, width)
    blocks = np.stack([values[:, end - width : end].mean(axis=1) for end in ends], axis=1)
    return Series.of(name, ends, curve_with_interval(blocks), blocks)


def _maps(outcome: MazeOutcome) -> list[Map]:
    columns, rows = MAZE.size
    x, y = (MAZE.position[MAZE.start] + 0.5).tolist()
    index = (MAZE.position[:, 0] * rows + MAZE.position[:, 1]).astype(int)
    walls = tuple(sorted(set(range(columns * rows)) - set(index.tolist())))
    kinds = (
        ("rewards", "reward of a cell", _paid(outcome), _reward_maps),
        ("visits", "share of the steps", outcome.config.rewards, _visit_maps),
    )
    return [
        Map(
            name=f"{kind}_{name}",
            title=name,
            x_label="x",
            y_label="y",
            bounds=((0.0, float(columns)), (0.0, float(rows))),
            shape=MAZE.size,
            value_label=unit,
            # A reward of 0 is something else than no visit: it is kept.
            frames=tuple(
                Frame.at(label, index[np.isfinite(values)], values[np.isfinite(values)])
                for label, values in zip(_labels(outcome), values_of(outcome, name), strict=True)
            ),
            logarithmic=kind == "visits",
            start=(x, y),
            walls=walls,
            group=kind,
        )
        for kind, unit, names, values_of in kinds
        for name in names
    ]


def _findings(outcome: MazeOutcome) -> tuple[str, ...]:
    """Sentences from the numbers, for the rewards that were run."""
    rewards = outcome.config.rewards
    depths = {name: depth_reached(outcome, name) for name in rewards}
    reached = ", ".join(
        f"{name} {depths[name][:, -LAST:].mean():.0f} "
        f"({dead_end_share(outcome, name)[:, -LAST:].mean():.0%} of the steps in shallow dead ends)"
        for name in rewards
    )
    sentences = [f"Depth reached in the last {LAST} episodes, of {MAZE.depth.max()}: {reached}."]
    if "lifelong" in rewards:
        sentences.append(_lifelong_sentence(outcome, depths["lifelong"]))
    if "episodic" in rewards:
        dead, way, deep = (
            _finite_mean(mean_reward(outcome, "episodic", cells, outcome.config.episodes))
            for cells in _regions().values()
        )
        if dead is not None and way is not None and deep is not None:
            sentences.append(
                f"After the last episode the episodic reward is {dead:.2f} in shallow dead ends, "
                f"{way:.2f} in shallow cells on the way and {deep:.2f} in deep ones."
            )
    return tuple(sentences)


def _lifelong_sentence(outcome: MazeOutcome, depth: Float[np.ndarray, "P E"]) -> str:
    width = min(LAST, depth.shape[1])
    blocks = [depth[:, end - width : end].mean() for end in range(width, depth.shape[1] + 1)]
    best = int(np.argmax(blocks))
    final = outcome.rewards["lifelong"][:, -1]
    gone = np.mean(final[np.isfinite(final)] == 0.0)
    return (
        f"Agents with the lifelong reward are deepest in episodes {best + 1} to {best + width} "
        f"(depth {blocks[best]:.0f}) and end at {blocks[-1]:.0f}; after the last episode their "
        f"reward is 0 in {gone:.0%} of the cells they have visited."
    )


def _notes(config: MazeConfig) -> tuple[str, ...]:
    return (
        f"{config.seeds} seeds ({config.first_seed} to {config.first_seed + config.seeds - 1}), "
        f"{config.episodes} episodes of "
        f"{config.steps} steps, k = {config.num_neighbours}, β = {config.lifelong_weight}. The "
        "maze is our own drawing.",
        "The paper gives neither k nor the settings of Q-learning for its maze. A cell visited "
        "more than k times has r_l = 0.",
        "Random is a policy: every action is as likely as the others.",
    )
