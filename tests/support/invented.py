"""Results of a study as a real one has them, made up from random walks."""

from functools import cache

import numpy as np

from element_rl.studies.engine.results import (
    CellRecord,
    Curves,
    Frame,
    Map,
    PathGroup,
    Paths,
    PointGroup,
    Results,
    Scatter,
    Series,
    Table,
)

METHODS = ("element", "rnd", "ngu", "re3", "rise", "random")
SPEEDS = dict(zip(METHODS, (0.5, 0.34, 0.38, 0.28, 0.25, 0.18), strict=True))
BOUNDS = {"Ant-v5": ((-25.0, 25.0), (-25.0, 25.0)), "Hopper-v5": ((-20.0, 40.0), (0.0, 2.0))}
SEEDS = 5
STEPS = tuple(float(step) for step in range(0, 1_000_001, 20_000))


@cache
def invented_results(
    envs: tuple[str, ...] = ("Ant-v5", "Hopper-v5"), frames: int = 6, cells: int = 60
) -> Results:
    """A coverage study with one cell that failed, and one of everything else a page can show."""
    random = np.random.default_rng(0)
    records = [
        CellRecord(f"{env}_{method}", env, method, 5, 1_000_000, "done", 1834.2 + 10 * len(method))
        for env in envs
        for method in METHODS
    ]
    reason = "RuntimeError: the environment ended with exit code −11 after 340,000 steps"
    records[-2] = CellRecord(
        records[-2].name, envs[-1], "rise", 5, 1_000_000, "failed", 611.0, reason
    )
    return Results(
        study="coverage",
        title="Coverage: how much of the plane do agents see?",
        question="Does the full reward of ELEMENT lead an agent to more places than the rewards of "
        "four other methods do?",
        scale="small",
        command="element study coverage --scale small --out runs/coverage",
        cells=tuple(records),
        findings=(
            "On Ant-v5 element covers more than rnd: IQM 2,140 (1,900 to 2,300) against 1,200 "
            "(1,100 to 1,350), P(better) 1.00.",
            "On Hopper-v5 there is no clear difference between element and ngu: IQM 913 (850 to "
            "960) against 890 (820 to 930).",
        ),
        notes=(
            "Windows are shrunk in proportion: U = 50,000 and T_u = 5,000 instead of 500,000 and "
            "50,000.",
        ),
        tables=(_table(envs, random),),
        curves=tuple(_curves(env, random) for env in envs),
        maps=tuple(_map(env, method, frames, cells, random) for env in envs for method in METHODS)
        + _maze(random),
        paths=(_paths(random),),
        scatters=(_scatter(random),),
        settings={
            "steps": 1_000_000,
            "seeds": 5,
            "explore": {
                "beta": 0.5,
                "memory": "auto",
                "sac": {"hidden": [256, 256, 256], "learning_rate": 3e-4},
            },
            "cells": {
                record.name: {"env": record.env, "reward": record.method} for record in records
            },
        },
        provenance={
            "commit": "d22ea63f0d1c2b3a4958677685949392a1b0c1d2",
            "date": "2025-11-15",
            "versions": {
                "python": "3.11.9",
                "element_rl": "0.1.0",
                "jax": "0.10.2",
                "mujoco": "3.3.7",
                "faiss": "1.12.0",
            },
            "hardware": {
                "cpu_count": 16,
                "cpu_model": "A processor @ 2.10 GHz",
                "devices": ["A large accelerator"],
            },
        },
    )


def _table(envs: tuple[str, ...], random: np.random.Generator) -> Table:
    rows = []
    for env in envs:
        for method in METHODS:
            iqm = 4200 * SPEEDS[method] + random.normal(scale=40)
            row = (env, method, 5, f"{iqm:,.0f} ± {iqm / 12:,.0f}", iqm, iqm * 0.93, iqm * 1.05)
            rows.append(
                (env, method, 4, None, None, None, None)
                if method == "rise" and env == envs[-1]
                else row
            )
    columns = ("environment", "method", "seeds", "mean ± std (cells)", "IQM", "95 % from", "to")
    note = "IQM: mean of the middle half of the runs. Interval: bootstrap over runs."
    return Table("coverage", "Cells seen after 1M steps", columns, tuple(rows), note)


def _curves(env: str, random: np.random.Generator) -> Curves:
    steps = np.asarray(STEPS)
    series = []
    for method in METHODS:
        middle = (
            4200 * SPEEDS[method] * (1 - np.exp(-steps / 4e5))
            + random.normal(scale=8, size=len(steps)).cumsum()
        )
        middle = np.maximum(middle, 0)
        band = 0.05 * middle + 10
        line = [
            None if step < 40_000 else float(value)
            for step, value in zip(steps, middle, strict=True)
        ]
        series.append(
            Series(
                method,
                STEPS,
                tuple(line),
                tuple((middle - band).tolist()),
                tuple((middle + band).tolist()),
                tuple((middle[-1] * np.linspace(0.9, 1.08, SEEDS)).tolist()),
            )
        )
    return Curves(
        f"cells_{env}",
        env,
        "steps per seed",
        "cells seen",
        tuple(series),
        "Line: IQM of 5 seeds. Band: 95 % interval. Points: every seed.",
    )


def _map(env: str, method: str, frames: int, cells: int, random: np.random.Generator) -> Map:
    (left, right), (low, high) = bounds = BOUNDS.get(env, BOUNDS["Ant-v5"])
    walks = random.normal(scale=SPEEDS[method], size=(frames, 120, 300, 2)).cumsum(axis=2)
    scale = np.linspace(0.3, 1.3, frames)[:, None, None]
    flat = env.startswith("Hopper")
    x = walks[..., 0] * scale
    y = 1.0 + 0.05 * walks[..., 1] * scale if flat else walks[..., 1] * scale
    visits = [
        np.histogram2d(a.ravel(), b.ravel(), cells, ((left, right), (low, high)))[0]
        for a, b in zip(x, y, strict=True)
    ]
    shares = np.cumsum(visits, axis=0)
    shares = shares / shares.sum(axis=(1, 2), keepdims=True)
    pictures = tuple(
        Frame.of(f"{round(1000 * (position + 1) / frames)}k steps", share)
        for position, share in enumerate(shares)
    )
    start = (0.0, 1.25) if flat else (0.0, 0.0)
    labels = ("x (m)", "z (m)" if flat else "y (m)")
    shape = (cells, cells)
    name = f"visits_{env}_{method}"
    return Map(
        name,
        method,
        *labels,
        bounds,
        shape,
        "share of visits",
        pictures,
        True,
        not flat,
        start,
        group=env,
    )


def _maze(random: np.random.Generator) -> tuple[Map, ...]:
    """Two maps of rewards over a small maze with walls."""
    walls = np.zeros((20, 20), bool)
    walls[3:17:4, :14] = walls[5:17:4, 6:] = True
    maps = []
    for title, slope in (("episodic", 0.04), ("lifelong", -0.03)):
        depth = np.add.outer(np.arange(20), 0.3 * np.arange(20))
        pictures = []
        for episode, share in ((5, 0.4), (50, 0.7), (300, 1.0)):
            values = 1 + slope * depth * share + random.normal(scale=0.02, size=(20, 20))
            pictures.append(
                Frame.of(f"episode {episode}", np.where(walls | (depth > 27 * share), 0, values))
            )
        bounds = ((0.0, 20.0), (0.0, 20.0))
        flat = tuple(np.flatnonzero(walls).tolist())
        frames = tuple(pictures)
        maps.append(
            Map(
                f"maze_{title}",
                title,
                "column",
                "row",
                bounds,
                (20, 20),
                "reward",
                frames,
                False,
                True,
                (0.5, 0.5),
                flat,
                "Maze",
            )
        )
    return tuple(maps)


def _paths(random: np.random.Generator) -> Paths:
    groups = []
    for position in range(5):
        turns = random.normal(scale=0.12, size=(6, 400)).cumsum(axis=1) + random.uniform(
            0, 6.3, size=(6, 1)
        )
        points = (
            0.012
            * (1 + 2 * position)
            * np.stack([np.cos(turns), np.sin(turns)], axis=2).cumsum(axis=1)
        )
        paths = tuple(tuple(map(tuple, path)) for path in points.tolist())
        groups.append(PathGroup(f"{200 * (position + 1)}k steps", paths))
    return Paths("ways", "Ant-v5, element", "x (m)", "y (m)", tuple(groups), True, (0.0, 0.0))


def _scatter(random: np.random.Generator) -> Scatter:
    groups = []
    for label, number, noise in (("training", 800, 0.15), ("held out", 200, 0.25)):
        true = random.uniform(2, 7, number)
        predicted = true + random.normal(scale=noise, size=number)
        groups.append(PointGroup(label, tuple(true.tolist()), tuple(predicted.tolist())))
    note = "Every point is an episode. R² on held-out episodes: 0.94."
    return Scatter(
        "fit", "Entropy of episodes", "true (bits)", "predicted (bits)", tuple(groups), True, note
    )
