"""Does a sample of the replay rank states as the whole of it does? The distance to the k-th nearest
neighbour, RE3's, among draws and among all states.

    rank correlation   Spearman's, over 2,000 states of the replay: of the distance among a sample
                       with that among all others
    factor             distance among the sample over that among all: its median, and the middle
                       eighty percent. Were it the same for all states, the sample would do.
    whole              what `pool=whole` has noted in the replay, by merging as episodes ended

Data are real: random steps of robots as `element explore` has them, encoded as there, in episodes
of 1,000. Samples are drawn as the pool is: with replacement, each transition counted once, the
state itself left out.

    python -m benchmarks.bench_pool_correlation --steps 100000
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro
from jaxtyping import Float
from scipy.stats import spearmanr

from benchmarks.tables import ROOT, markdown_table, provenance, replace_table, source_line
from element_rl.acting.collector import ProcessCollector
from element_rl.agents.making import make_agent
from element_rl.agents.sac import SACConfig
from element_rl.envs.make import describe
from element_rl.envs.robots import HEALTH_OPTION, can_fall
from element_rl.memory import exact
from element_rl.rewards import make_reward
from element_rl.storage.files import write_json
from element_rl.training.off_policy.learner import Learner

PAGE = ROOT / "docs" / "methods" / "re3.md"
CHUNK = 500  # steps


@dataclass(frozen=True)
class Settings:
    """What to measure."""

    envs: tuple[str, ...] = ("Hopper-v5", "Ant-v5")
    steps: int = 100_000  # all of them stored
    shares: tuple[float, ...] = (0.004, 0.006, 0.04, 0.1, 0.5)  # of the replay that is drawn
    queries: int = 2_000
    samples: int = 5  # of every size
    neighbours: int = 3
    max_episode_steps: int = 1_000
    page: bool = True  # write the table into docs/methods/re3.md
    out: Path = Path(".cache/benchmarks/pool_correlation.json")


def main(settings: Settings) -> list[dict[str, Any]]:
    """Measure every environment; one table."""
    rows = [row for env in settings.envs for row in measure(settings, env)]
    made_with = provenance(("jax", "gymnasium", "mujoco"))
    settings.out.parent.mkdir(parents=True, exist_ok=True)
    write_json(settings.out, {"made_with": made_with, "results": rows})
    text = f"{render(rows)}\n\n{source_line(made_with)}"
    print(text)
    if settings.page:
        replace_table(PAGE, "pool-correlation", text)
    return rows


def measure(settings: Settings, env: str) -> list[dict[str, Any]]:
    """One row per share of the replay, and one for all of it."""
    states, notes = stored(settings, env)
    rng = np.random.default_rng(0)
    asked = rng.choice(len(states), min(settings.queries, len(states)), replace=False)
    among_all = kth_distance(states, asked, np.arange(len(states)), settings.neighbours)
    rows = []
    for share in settings.shares:
        draws = max(round(share * len(states)), settings.neighbours + 2)
        sampled = [
            kth_distance(
                states,
                asked,
                np.unique(rng.integers(len(states), size=draws)),
                settings.neighbours,
            )
            for _ in range(settings.samples)
        ]
        rows.append(_row(env, len(states), draws, sampled, among_all))
    noted = notes[asked, settings.neighbours - 1]
    return [*rows, _row(env, len(states), None, [noted], among_all)]


def stored(
    settings: Settings, env: str
) -> tuple[Float[np.ndarray, "N D"], Float[np.ndarray, "N K"]]:
    """The states that random steps led to, in order, and what a run would have noted of them."""
    options: dict[str, Any] = {"max_episode_steps": settings.max_episode_steps}
    options |= {HEALTH_OPTION: False} if can_fall(env) else {}
    spec = describe(env, **options)
    agent = make_agent("sac", SACConfig(), spec.observation_dim, spec.action_dim)
    reward = make_reward("re3", pool="whole", num_neighbours=settings.neighbours)
    capacity = settings.steps + 4 * settings.max_episode_steps + 4 * CHUNK
    learner = Learner(spec, reward, agent, [0], capacity, CHUNK, settings.steps)
    with ProcessCollector(env, [0], CHUNK, None, {}, env_options=options) as collector:
        for index in range(settings.steps // CHUNK):
            collector.start(index, None)
            learner.ingest(collector.wait())
    replay: Any = jax.device_get(learner.state.replay)
    tail, count = learner.ledger.sampleable()[0, :, 0]
    slots = replay.sampleable[0, tail : tail + count]
    return replay.state[0, slots + 1], replay.notes["neighbour_distances"][0, slots]


def kth_distance(
    states: Float[np.ndarray, "N D"], asked: np.ndarray, among: np.ndarray, k: int
) -> Float[np.ndarray, " Q"]:
    """Of states to the k-th nearest of some, by their rows; a state is not its own neighbour."""
    memory = exact.create(len(among), states.shape[1])
    memory = memory._replace(
        states=memory.states.at[: len(among)].set(states[among]),
        size=memory.size + len(among),
    )
    place = np.searchsorted(among, asked)
    itself = among[np.minimum(place, len(among) - 1)] == asked
    own = np.where(itself, place, exact.NO_NODE).astype(np.int32)
    query = jax.jit(exact.query, static_argnames="k")
    return np.asarray(query(memory, jax.numpy.asarray(states[asked]), k=k, own=own)[0])[:, -1]


def render(rows: list[dict[str, Any]]) -> str:
    """Mean over the samples, with the lowest and highest."""
    header = ["states", "compared with", "share", "rank correlation", "factor"]
    lines = []
    for row in rows:
        whole = row["draws"] is None
        low, high = min(row["correlation"]), max(row["correlation"])
        mean = f"{np.mean(row['correlation']):.2f}"
        lines.append(
            [
                f"{row['env']}, {row['states']:,}",
                "all (`pool=whole`)" if whole else f"{row['draws']:,} draws",
                "100 %" if whole else f"{100 * row['draws'] / row['states']:.3g} %",
                f"{row['correlation'][0]:.4f}" if whole else f"{mean} ({low:.2f}–{high:.2f})",
                "{:.2f} ({:.2f}–{:.2f})".format(*row["factor"]),
            ]
        )
    return markdown_table(header, lines)


def _row(
    env: str, states: int, draws: int | None, sampled: list[np.ndarray], among_all: np.ndarray
) -> dict[str, Any]:
    factors = np.concatenate([one / np.maximum(among_all, 1e-12) for one in sampled])
    return {
        "env": env,
        "states": states,
        "draws": draws,
        "correlation": [float(spearmanr(one, among_all).statistic) for one in sampled],
        "factor": [float(part) for part in np.percentile(factors, (50, 10, 90))],
    }


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
