"""What a spaced memory leaves out, and whether its cost stays flat: real states of Ant and Hopper,
offered episode by episode, and distances of held-out episodes to what it keeps and to all states.

    python -m benchmarks.bench_spaced_memory --states 200000 --capacities 2048 8192
    python -m benchmarks.bench_spaced_memory --states 1000000 --robots Hopper --table million
    python -m benchmarks.bench_spaced_memory --robots --runs runs/maze --table million

Ant's states are those of `benchmarks.trajectories`; Hopper's come from the same smooth actions, in
episodes of 1,000 steps that do not end by falling. `--runs` takes the states that explorers have
visited instead: those in the replay of a run's last checkpoint, world by world; of every hundred
thousand the last thousand are held out. One row for each capacity:

    δ               the spacing at the end, and how often the memory was thinned on the way
    excess          how much farther the nearest kept state is than the nearest of all: mean and
                    largest over the held-out states, in units of δ (the bound is 3.42)
    rank            correlation of the ranks of r_l = log(1 + ‖3 nearest‖), to kept and to all
    last / first    processor time per state in the last tenth of the insertions over that in the
                    first, which has an almost empty memory to search, and over that in the fifth
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.stats import spearmanr

from benchmarks.tables import (
    PAGE,
    markdown_table,
    provenance,
    replace_table,
    significant,
    source_line,
)
from benchmarks.trajectories import _smooth_actions, held_out_episodes, remembered_states
from element_rl.memory.in_place import ExactMemory, SpacedMemory
from element_rl.memory.spaced import GROWTH, step_distance
from element_rl.runs.folder import RunFolder

PACKAGES = ("jax", "numpy", "gymnasium", "mujoco")
EPISODE = 1_000  # states offered at once
NEIGHBOURS = 3
HELD_OUT = 5  # episodes of Hopper that are asked about
HELD_OUT_SEED = 1_000_000
TENTH = 0.1
HELD_OUT_EVERY = 100  # stretches of a run
Pair = tuple[Float[np.ndarray, "N D"], Float[np.ndarray, "Q D"]]  # remembered, asked about


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=200_000, help="how many are offered")
    parser.add_argument("--capacities", type=int, nargs="+", default=[2_048, 8_192])
    parser.add_argument("--robots", nargs="*", default=["Ant", "Hopper"])
    parser.add_argument("--runs", type=Path, nargs="*", default=[], help="folders of explorers")
    parser.add_argument("--table", default="spaced", help="of the page; none: only printed")
    arguments = parser.parse_args()
    sources: list[tuple[str, Callable[[], Pair]]] = [
        (robot, partial(ROBOTS[robot], arguments.states)) for robot in arguments.robots
    ]
    sources += [(RunFolder.open(run).config["env"], partial(of_run, run)) for run in arguments.runs]
    rows = []
    for name, made in sources:
        states, asked = made()
        for capacity in arguments.capacities:
            found = {"robot": name} | measure(states, asked, capacity)
            rows.append(found)
            print(rows[-1], flush=True)
    if arguments.table != "none":
        text = f"{render(rows)}\n\n{source_line(provenance(PACKAGES))}"
        replace_table(PAGE, arguments.table, text)


def measure(
    states: Float[np.ndarray, "N D"], asked: Float[np.ndarray, "Q D"], capacity: int
) -> dict[str, Any]:
    """One memory, fed with everything."""
    memory, everything = SpacedMemory(states.shape[1], capacity), ExactMemory(states.shape[1])
    spacing = 0.0
    first = step_distance(jnp.asarray(states[:EPISODE]), jnp.ones(len(states[:EPISODE]), bool))
    seconds = []
    for start in range(0, len(states), EPISODE):
        episode = states[start : start + EPISODE]
        began = time.process_time()
        memory.insert(episode)
        spacing = memory.spacing  # waits for the insertion
        seconds.append((time.process_time() - began) / len(episode))
    everything.insert(states)
    kept, every = memory.query(asked, NEIGHBOURS)[0], everything.query(asked, NEIGHBOURS)[0]
    excess = (kept[:, 0] - every[:, 0]) / spacing
    novelty = [np.log1p(np.linalg.norm(distances, axis=1)) for distances in (kept, every)]
    return {
        "states": len(states),
        "capacity": capacity,
        "kept": len(memory),
        "spacing": spacing,
        "thinned": round(float(np.log(spacing / float(first)) / np.log(GROWTH))),
        "excess": float(excess.mean()),
        "largest": float(excess.max()),
        "rank": float(spearmanr(*novelty).statistic),
        "microseconds": 1e6 * float(np.median(seconds)),
        "growth": growth(seconds, 0),
        "later_growth": growth(seconds, 4),
    }


def growth(seconds: Sequence[float], earlier: int) -> float:
    """The median cost in the last tenth over that in an earlier one."""
    tenth = max(int(TENTH * len(seconds)), 1)
    before = seconds[earlier * tenth : (earlier + 1) * tenth] or seconds
    return float(np.median(seconds[-tenth:]) / np.median(before))


def hopper(count: int) -> Pair:
    """States to remember, and others to ask about."""
    remembered = np.concatenate(list(itertools.islice(_episodes(0), -(-count // EPISODE))))
    asked = np.concatenate(list(itertools.islice(_episodes(HELD_OUT_SEED), HELD_OUT)))
    return remembered[:count], asked


def of_run(folder: Path) -> Pair:
    """What the first agent of a run has visited, and what of it is asked about."""
    run = RunFolder.open(folder)
    arrays = run.load_resume()[0]
    states = arrays["learner/replay/state"][0]
    envs = int(run.config["settings"]["envs_per_agent"] or 1)
    # slot i is of world i % E: stretches of an episode's length, one world after the other
    rows = len(states) // (envs * EPISODE) * EPISODE
    worlds = states[: rows * envs].reshape(-1, EPISODE, envs, states.shape[-1])
    stretches = worlds.swapaxes(1, 2).reshape(-1, EPISODE, states.shape[-1])
    held = np.arange(len(stretches)) % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
    remembered, asked = (np.concatenate(stretches[which]) for which in (~held, held))
    return remembered, asked


def ant(count: int) -> Pair:
    """The same of the Ant."""
    return remembered_states(count), np.concatenate(held_out_episodes())


def _episodes(seed: int) -> Iterator[Float[np.ndarray, "T D"]]:
    import gymnasium
    import jax

    from element_rl.encoders.state import make_state_encoder
    from element_rl.envs.make import describe

    options = {"terminate_when_unhealthy": False}
    spec = describe("Hopper-v5", (), (), "vectors", **options)
    env: Any = gymnasium.make("Hopper-v5", **options)
    encode = jax.jit(jax.vmap(make_state_encoder(0, spec.observation_dim, spec.orientation_slice)))
    generator = np.random.default_rng(seed)
    env.reset(seed=seed)
    while True:
        seen = []
        for action in _smooth_actions(generator, generator.uniform(0.0, 0.95), spec.action_dim):
            observation = env.step(action)[0]
            seen.append((observation, env.unwrapped.data.qpos[:2].copy()))  # x and z
        observations, positions = (np.array(part, np.float32) for part in zip(*seen, strict=True))
        yield np.asarray(encode(observations, positions))
        env.reset()


ROBOTS: dict[str, Callable[[int], Pair]] = {"Ant": ant, "Hopper": hopper}


def render(rows: Sequence[dict[str, Any]]) -> str:
    header = (
        "states of, room for",
        "offered",
        "kept",
        "δ",
        "thinned",
        "excess, mean",
        "largest",
        "rank",
        "µs per state",
        "last / first tenth",
        "last / fifth",
    )
    names = (
        "spacing",
        "thinned",
        "excess",
        "largest",
        "rank",
        "microseconds",
        "growth",
        "later_growth",
    )
    lines = [
        (
            f"{row['robot']}, {row['capacity']:,}",
            f"{row['states']:,}",
            f"{row['kept']:,}",
            *(significant(row[name]) for name in names),
        )
        for row in rows
    ]
    return markdown_table(header, lines)


if __name__ == "__main__":
    main()
