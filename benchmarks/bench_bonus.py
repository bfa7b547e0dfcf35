"""What does each reward cost an on-policy agent? Milliseconds per rollout of 300 steps, states of
32 numbers, on the CPU.

Processor time, all threads together: what is taken from the environments that run beside it.

    rewards    the rewards of a rollout, the mean over the three rollouts of an episode of 900 steps
    learn      what the reward learns from it
    observe    what it does when the episode has ended, a third of it
    in all     the three together; beside it, how many steps a second one core could reward

ELEMENT's cost grows with what it remembers, so it is measured with so many nodes as well: that many
states of ended episodes, a tenth of them in the lifelong memory. After a restart its index is made
anew: `restart` says how many seconds that takes. States are those of walks through a plane, none
twice: frames that repeat cost less.

    python -m benchmarks.bench_bonus --nodes 0 100000 1000000
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

from benchmarks.tables import (
    PAGE,
    markdown_table,
    provenance,
    replace_table,
    significant,
    source_line,
)
from element_rl.rewards import NAMES, make_bonus
from element_rl.rewards.element_on_policy import OnPolicyElement
from element_rl.rewards.on_rollouts import Bonus, EpisodeSoFar, Part
from element_rl.storage.files import write_json

PACKAGES = ("jax", "optax", "faiss-cpu")
DIM, ACTIONS = 32, 12  # the paper's encoder of Mario; the complex set of actions
ROLLOUT, ROLLOUTS = 300, 3
EPISODE = ROLLOUT * ROLLOUTS


@dataclass(frozen=True)
class Settings:
    """What to measure."""

    rewards: tuple[str, ...] = NAMES
    nodes: tuple[int, ...] = (0, 100_000, 1_000_000)  # remembered by ELEMENT
    rounds: int = 5
    page: bool = True  # write the table into docs/benchmarks.md
    out: Path = Path(".cache/benchmarks/bonus.json")


def main(settings: Settings) -> list[dict[str, Any]]:
    """Measure every reward; one table."""
    rows = []
    for name in settings.rewards:
        for nodes in settings.nodes if name == "element" else (0,):
            rows.append(measure(name, nodes, settings.rounds))
            print(rows[-1], flush=True)
    made_with = provenance(PACKAGES)
    settings.out.parent.mkdir(parents=True, exist_ok=True)
    write_json(settings.out, {"made_with": made_with, "results": rows})
    text = f"{render(rows)}\n\n{source_line(made_with)}"
    print(text)
    if settings.page:
        replace_table(PAGE, f"bonus-{jax.devices()[0].platform}", text)
    return rows


def measure(name: str, nodes: int, rounds: int) -> dict[str, Any]:
    """Medians, in milliseconds, over rounds of an episode each; the first, which compiles, does not
    count."""
    total_steps = max(nodes, 10_000) + (rounds + 1) * EPISODE
    bonus = make_bonus(
        name, state_dim=DIM, actions=ACTIONS, max_episode_steps=EPISODE, total_steps=total_steps
    )
    generator = np.random.default_rng(0)
    state: Any = bonus.init(jax.random.key(0))
    restart = None
    if isinstance(bonus, OnPolicyElement) and nodes:
        state = _remembering(bonus, state, nodes, generator)
        restart = _timed(
            lambda: bonus.rewards(state, [Part(walk(generator, EPISODE), ROLLOUT)]), []
        )[1]
    spent: dict[str, list[float]] = {"rewards": [], "learn": [], "observe": []}
    for turn in range(rounds + 1):
        times: dict[str, list[float]] = {part: [] for part in spent}
        state = _episode(
            bonus, state, walk(generator, EPISODE), nodes + EPISODE * (turn + 1), times
        )
        if turn:
            for part, seconds in times.items():
                spent[part].append(1e3 * sum(seconds) / ROLLOUTS)
    medians = {part: statistics.median(values) for part, values in spent.items()}
    return {"reward": name, "nodes": nodes, **medians, "restart": restart}


def render(rows: list[dict[str, Any]]) -> str:
    header = [
        "reward",
        "nodes",
        "rewards, ms",
        "learn, ms",
        "observe, ms",
        "in all, ms",
        "steps/s",
        "restart, s",
    ]
    lines = []
    for row in rows:
        parts = [row["rewards"], row["learn"], row["observe"]]
        nodes = f"{row['nodes']:,}" if row["reward"] == "element" else "–"
        restart = "–" if row["restart"] is None else significant(row["restart"])
        speed = significant(1e3 * ROLLOUT / sum(parts))
        lines.append(
            [
                row["reward"],
                nodes,
                *(significant(part) for part in (*parts, sum(parts))),
                speed,
                restart,
            ]
        )
    return markdown_table(header, lines)


def walk(generator: np.random.Generator, length: int) -> EpisodeSoFar:
    """A walk through a world of 100 by 100 that keeps its direction for some twenty steps, seen as
    32 smooth functions of the place and a little noise."""
    noise = generator.normal(size=(length + 1, 2))
    speed, place = np.zeros((length + 1, 2)), np.zeros((length + 1, 2))
    for step in range(1, length + 1):
        speed[step] = 0.95 * speed[step - 1] + 0.1 * noise[step]
        place[step] = np.clip(place[step - 1] + speed[step], 0, 100)
    view = np.random.default_rng(1)
    waves, phases = 0.3 * view.normal(size=(2, DIM)), view.uniform(0, 2 * np.pi, DIM)
    states = np.cos(place @ waves + phases) + 0.02 * generator.normal(size=(length + 1, DIM))
    actions = generator.integers(0, ACTIONS, length).astype(np.int32)
    return EpisodeSoFar(states.astype(np.float32), actions, np.zeros(length, np.float32), True)


def _remembering(
    bonus: OnPolicyElement, state: Any, nodes: int, generator: np.random.Generator
) -> Any:
    """A state with so many nodes, none of them in an index yet."""
    states = np.concatenate(
        [walk(generator, EPISODE).states[1:] for _ in range(-(-nodes // EPISODE))]
    )[:nodes]
    entropies = generator.uniform(3, 8, nodes).astype(np.float32)
    return state._replace(
        episodic=bonus._episodic.append(state.episodic, states, entropies),
        lifelong=bonus._lifelong.append(state.lifelong, states[::10], entropies[::10]),
    )


def _episode(
    bonus: Bonus, state: Any, episode: EpisodeSoFar, step: int, times: dict[str, list[float]]
) -> Any:
    for length in range(ROLLOUT, EPISODE + 1, ROLLOUT):
        so_far = EpisodeSoFar(
            episode.states[: length + 1], episode.actions[:length], episode.rewards[:length], False
        )
        parts = [Part(so_far, ROLLOUT)]
        _timed(lambda: bonus.rewards(state, parts), times["rewards"])  # noqa: B023
        (state, _), _ = _timed(
            lambda: bonus.learn(state, parts, jax.random.key(0)),  # noqa: B023
            times["learn"],
        )
    (state, _), _ = _timed(lambda: bonus.observe(state, episode, step), times["observe"])
    return state


def _timed(call: Callable[[], Any], times: list[float]) -> tuple[Any, float]:
    began = time.process_time()
    result = jax.block_until_ready(call())
    seconds = time.process_time() - began
    times.append(seconds)
    return result, seconds


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
