"""What a bonus costs beside the environment and a learner, and whether its memory finds the
neighbours it should."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from element_rl.agents import sac
from element_rl.doctor.findings import Finding, checked
from element_rl.doctor.trial import BATCH_SIZE, Judgement, Trial
from element_rl.rewards.interface import remembering

# what the costs are compared with
LEARNER = sac.SACConfig(hidden_sizes=(256, 256), batch_size=BATCH_SIZE)
UPDATES_TIMED = 10
COSTLY = 1.0  # of environment and learner together: a bonus beyond this doubles the time of a run
GOOD_RECALL = 0.9


def check_cost(trial: Trial, judgement: Judgement) -> Finding:
    """Microseconds per environment step and per update, beside the environment's own and SAC's."""
    step, observe = (
        _typical(per_episode) for per_episode in (trial.step_seconds, trial.observe_seconds)
    )
    update, learner = float(np.median(judgement.update_seconds)), sac_update_seconds(trial)
    values = {"env_step": step, "observe": observe, "update": update, "sac_update": learner}
    ratio = (observe + update) / (step + learner)
    sentence = (
        f"Per step {observe * 1e6:,.0f} µs (the environment: {step * 1e6:,.0f}); per update of "
        f"{BATCH_SIZE} transitions {update * 1e6:,.0f} µs (SAC here: {learner * 1e6:,.0f}). "
        f"One of each takes {1 + ratio:.2f} times as long with the bonus."
    )
    advice = (
        "Smaller networks or pools of the reward help, or a GPU; for ELEMENT a longer "
        "--update-interval."
    )
    return checked("cost", ratio <= COSTLY, sentence, advice, values | {"ratio": ratio})


def sac_update_seconds(trial: Trial) -> float:
    """One update of this library's SAC, on vectors of this size."""
    ids = trial.bonus.sample(BATCH_SIZE, np.random.default_rng(0))
    batch = sac_batch(trial, ids, np.zeros(BATCH_SIZE, np.float32))
    agent = sac.create(
        jax.random.key(0), batch.observation.shape[1], batch.action.shape[1], LEARNER
    )
    update = jax.jit(lambda agent, key: sac.update(agent, batch, key, LEARNER))
    seconds = []
    for index in range(UPDATES_TIMED + 1):
        began = time.perf_counter()
        agent, _ = jax.block_until_ready(update(agent, jax.random.key(index)))
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds[1:]))  # the first one compiles


def sac_batch(trial: Trial, ids: Any, reward: np.ndarray) -> sac.Batch:
    """Transitions of a trial, as SAC takes them."""
    observations, actions, next_observations, _ = trial.transitions(ids)
    return sac.Batch(
        jnp.asarray(trial.vectors(observations)),
        jnp.asarray(trial.flat_actions(actions)),
        jnp.asarray(reward),
        jnp.asarray(trial.vectors(next_observations)),
        jnp.asarray(np.asarray(trial.terminated)[ids]),
    )


def check_recall(trial: Trial) -> Finding | None:
    """The memory that a long run would have finds the true neighbours; None for rewards without a
    memory."""
    memory = remembering(trial.bonus.rewarder)
    if memory is None:
        return None
    kind = trial.settings.reward_options.get("memory", "auto")
    # what auto becomes on a CPU, when the memory has grown
    kind = "hnsw" if kind == "auto" else kind
    k, states = memory.num_neighbours, trial.states()
    remembered, asked = states[: len(states) // 2], states[len(states) // 2 :]
    found, kept = [], []
    for one in (kind, "exact"):
        filled = memory.empty_memory(one, states.shape[1])
        kind = filled.kind if one == kind else kind  # some rewards have one kind only
        filled.insert(remembered)
        found.append(filled.query(asked, k)[0])
        kept.append(len(filled))
    if kept[0] < kept[1]:
        return _leaves_out(kind, kept, float(np.mean(found[0][:, 0] - found[1][:, 0])))
    # By distance, not by number: where states are equal, either is right.
    recall = float(np.mean(found[0] <= found[1][:, -1:] * (1 + 1e-4) + 1e-6))
    sentence = (
        f"The {kind} memory finds {recall:.1%} of the {k} nearest among {len(remembered):,} states "
        "of this environment."
    )
    advice, values = "Use --memory auto, exact or hnsw.", {"kind": kind, "recall": recall}
    return checked("recall", recall >= GOOD_RECALL, sentence, advice, values)


def _leaves_out(kind: str, kept: list[int], farther: float) -> Finding:
    """A memory that does not keep all states is not asked for all neighbours."""
    sentence = (
        f"The {kind} memory keeps {kept[0]:,} of {kept[1]:,} states of this environment; the "
        f"nearest of them is {farther:.3g} farther on average than the nearest of all."
    )
    return Finding("recall", "ok", sentence, values={"kind": kind, "kept": kept[0]})


def _typical(seconds_per_episode: list[list[float]]) -> float:
    """The median over episodes of a step's mean: what is compiled in the first of them does not
    count."""
    return float(np.median([np.mean(seconds) for seconds in seconds_per_episode if seconds]))
