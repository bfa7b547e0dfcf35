"""Do our offline learners learn what d3rlpy's learn? CQL, TD3+BC, IQL and behaviour cloning of both
on the same dataset.

Both have the same data, networks, batches, learning rates, numbers of updates and scales of
observations and rewards (`d3rlpy_contender`). Ours are trained as `element offline` trains them,
all seeds at once; d3rlpy's one after the other, on one thread. Every policy acts deterministically
in the same episodes: the seeds of their starts depend on the agent's seed and the update alone.

    element explore Hopper-v5 --reward extrinsic --steps 60000 --checkpoint-every 6000 \\
        --sac.hidden-sizes 128 128 --out runs/hopper
    element collect runs/hopper --steps 40000 --dataset hopper/sac-v0
    python -m benchmarks.bench_offline_peers

The table has the mean return over the last quarter of the evaluations and over all of them, the
exact p-value of "the two do not differ" (a permutation test over seeds) and Holm's correction over
the table. Each result is kept in --out as soon as it is there, and not measured again.
"""

import dataclasses
import importlib.util
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from benchmarks.tables import ROOT, markdown_table, provenance, replace_table, source_line
from element_rl.acting.evaluator import Evaluator
from element_rl.agents.behaviour_cloning import CloningConfig
from element_rl.agents.cql import CQLConfig
from element_rl.agents.iql import IQLConfig
from element_rl.agents.td3_bc import TD3BCConfig
from element_rl.plots import save_figure
from element_rl.storage.files import read_json_object, write_json
from element_rl.studies.engine.statistics import holm, permutation_p_value
from element_rl.training.offline import create_offline_run, train_offline
from element_rl.training.offline.algorithms import NAMES, AlgorithmName
from element_rl.training.offline.config import OfflineConfig
from element_rl.training.offline.training import resolved_offline

PAGE = ROOT / "docs" / "results" / "offline-peers.md"
PACKAGES = ("jax", "d3rlpy", "torch", "gymnasium", "mujoco")
LIBRARIES = ("element-rl", "d3rlpy")
LAST = 0.25  # share of the evaluations that the end is the mean of


@dataclass(frozen=True)
class Settings:
    """What to compare."""

    datasets: tuple[str, ...] = ("hopper/sac-v0",)
    root: str | None = None  # folder of the datasets; Minari's own unless told otherwise
    algorithms: tuple[AlgorithmName, ...] = NAMES
    seeds: int = 5
    updates: int = 1_500
    evaluations: int = 10
    episodes: int = 5  # of each agent in an evaluation
    # small and fast, for a CPU; otherwise each algorithm has the library's defaults
    hidden_sizes: tuple[int, ...] = (64, 64)
    batch_size: int = 64
    sampled_actions: int = 4  # of CQL, of each kind
    learning_rate: float = 1e-3  # of everything that learns
    reward_scale: float = 0.1
    page: bool = False  # write the table and the figure into docs/results
    out: Path = Path(".cache/benchmarks/offline_peers")


def main(settings: Settings) -> list[dict[str, Any]]:
    """Train what has not been trained; the rows of the table."""
    if importlib.util.find_spec("d3rlpy") is None:
        raise SystemExit("d3rlpy is not installed: pip install d3rlpy.")
    made_with = provenance(PACKAGES)  # now: the code may change during the run
    rows = []
    for dataset in settings.datasets:
        for algorithm in settings.algorithms:
            curves = {
                library: kept(settings, dataset, algorithm, library, made_with)
                for library in LIBRARIES
            }
            rows.append(compared(dataset, algorithm, curves))
            print(json.dumps({k: v for k, v in rows[-1].items() if k != "curves"}), flush=True)
    for name in ("p_end", "p_all"):
        for row, corrected in zip(rows, holm([row[name] for row in rows]), strict=True):
            row[f"{name}_holm"] = corrected
    source = next(iter(rows))["curves"][LIBRARIES[0]]["made_with"]
    text = f"{render(rows)}\n\n{source_line(source)}"
    print(text)
    figure(settings, rows, settings.out)
    if settings.page:
        replace_table(PAGE, "offline-peers", text)
        figure(settings, rows, PAGE.parent)
    return rows


def config_of(settings: Settings, dataset: str, algorithm: AlgorithmName) -> OfflineConfig:
    """What both are given."""
    rate = settings.learning_rate
    small: dict[str, Any] = {
        "hidden_sizes": settings.hidden_sizes,
        "batch_size": settings.batch_size,
    }
    rates: dict[str, Any] = {"actor_learning_rate": rate, "critic_learning_rate": rate}
    cql = CQLConfig(
        sampled_actions=settings.sampled_actions, temperature_learning_rate=rate, **rates, **small
    )
    return OfflineConfig(
        (dataset,),
        algorithm=algorithm,
        root=settings.root,
        steps=settings.updates,
        seeds=settings.seeds,
        evaluate_every=settings.updates // settings.evaluations,
        episodes=settings.episodes,
        reward_scale=settings.reward_scale,
        workers=0,
        cql=cql,
        td3_bc=TD3BCConfig(**rates, **small),
        iql=IQLConfig(value_learning_rate=rate, **rates, **small),
        bc=CloningConfig(learning_rate=rate, **small),
    )


def kept(
    settings: Settings,
    dataset: str,
    algorithm: AlgorithmName,
    library: str,
    made_with: dict[str, str],
) -> dict[str, Any]:
    """Updates and returns [seed][evaluation], measured unless they are in the folder already."""
    path = settings.out / f"{dataset.replace('/', '-')}-{algorithm}-{library}.json"
    asked = dataclasses.asdict(settings) | {"out": "", "page": False, "datasets": (), "root": ""}
    asked = json.loads(json.dumps(asked | {"algorithms": ()}))
    if path.exists() and (stored := read_json_object(path))["settings"] == asked:
        return stored
    config = config_of(settings, dataset, algorithm)
    run = ours if library == LIBRARIES[0] else theirs
    updates, returns = run(config, path.with_suffix(""))
    result = {
        "settings": asked,
        "made_with": made_with,
        "updates": [int(update) for update in updates],
        "returns": [[float(value) for value in row] for row in returns],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, result)
    return result


def ours(config: OfflineConfig, folder: Path) -> tuple[Any, Any]:
    """All seeds as one population."""
    shutil.rmtree(folder, ignore_errors=True)
    run = create_offline_run(config, folder)
    train_offline(config, run)
    metrics = run.read_metrics()
    updates = np.unique(metrics["step"])
    return updates, metrics["extrinsic_return"].reshape(len(updates), -1).T


def theirs(config: OfflineConfig, folder: Path) -> tuple[Any, Any]:
    """One seed after the other."""
    from benchmarks.d3rlpy_contender import learned, make

    config, source = resolved_offline(config)
    (portion,) = source.portions
    assert config.evaluate_every is not None
    updates, curves = [], []
    with Evaluator(source.env, source.env_options, 0, source.make_environment) as evaluator:
        for seed in range(config.seed, config.seed + config.seeds):
            curve = {}
            learner = make(config, portion, seed)
            for step, policy in learned(
                learner, source, portion, config.steps, config.evaluate_every
            ):
                episodes = [(seed, step, episode) for episode in range(config.episodes)]
                evaluator.start(policy, [episodes])
                curve[step] = float(np.mean(evaluator.wait()[0]))
            updates = list(curve)
            curves.append(list(curve.values()))
            print(f"d3rlpy {config.algorithm}, seed {seed}: {curves[-1][-1]:,.1f}", flush=True)
    return updates, curves


def compared(
    dataset: str, algorithm: AlgorithmName, curves: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """A row: returns of each seed at the end and over all of learning, and how likely such a
    difference is by chance."""
    returns = [np.array(curves[library]["returns"]) for library in LIBRARIES]
    last = -max(int(LAST * returns[0].shape[1]), 1)
    ends = [each[:, last:].mean(axis=1) for each in returns]
    means = [each.mean(axis=1) for each in returns]
    return {
        "dataset": dataset,
        "algorithm": algorithm,
        "end": [each.tolist() for each in ends],
        "all": [each.tolist() for each in means],
        "p_end": permutation_p_value([ends[0]], [ends[1]]),
        "p_all": permutation_p_value([means[0]], [means[1]]),
        "curves": curves,
    }


def render(rows: list[dict[str, Any]]) -> str:
    """The table."""
    header = [
        "dataset, algorithm",
        *("ours, end", "d3rlpy, end", "p (Holm)"),
        *("ours, all updates", "d3rlpy, all updates", "p (Holm)"),
    ]
    lines = [
        [
            f"{row['dataset']}, {row['algorithm']}",
            *(_mean_std(values) for values in row["end"]),
            f"{row['p_end']:.2f} ({row['p_end_holm']:.2f})",
            *(_mean_std(values) for values in row["all"]),
            f"{row['p_all']:.2f} ({row['p_all_holm']:.2f})",
        ]
        for row in rows
    ]
    return markdown_table(header, lines)


def figure(settings: Settings, rows: list[dict[str, Any]], folder: Path) -> None:
    """A panel per algorithm and dataset: the mean over seeds, and from the lowest to the
    highest."""
    import matplotlib
    from matplotlib.figure import Figure

    from element_rl.plots.legends import draw_shared_legend
    from element_rl.plots.lines import BAND, draw_seeds, finish_axes
    from element_rl.plots.style import STYLE, add_note, line_style

    with matplotlib.rc_context(STYLE):
        columns = len(settings.algorithms)
        lines = -(-len(rows) // columns)
        drawn = Figure(figsize=(3.0 * columns, 2.7 * lines), layout="constrained")
        panels = drawn.subplots(lines, columns, squeeze=False).reshape(-1)
        for axes, row in zip(panels, rows, strict=False):
            for rank, library in enumerate(LIBRARIES):
                curve = row["curves"][library]
                values = np.array(curve["returns"])
                draw_seeds(axes, np.array(curve["updates"]), values, line_style(rank), library)
            axes.set_title(f"{row['algorithm']}, {row['dataset'].partition('/')[0]}")
        finish_axes(list(panels), "updates")
        panels[0].set_ylabel("return per episode")
        add_note(drawn, BAND)
        draw_shared_legend(drawn, list(panels))
        save_figure(drawn, folder / "offline-peers.png")


def _mean_std(values: list[float]) -> str:
    return f"{np.mean(values):,.0f} ± {np.std(values, ddof=1):,.0f}"


if __name__ == "__main__":
    main(tyro.cli(Settings))
