"""Is episodic entropy a sum over states? Episodes out of a run, and how well a reward that is
fitted to them predicts their entropy (section "Can ELEMENT maximize episodic state entropy?").
`additive_reward.py` says what is fitted and how it is measured."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from element_rl.replay.stored import stored_episodes
from element_rl.runs.folder import RunError, RunFolder
from element_rl.studies.additivity.additive_reward import (
    BY_LENGTH,
    BY_STEP,
    FEWEST_EPISODES,
    MEAN,
    SUM,
    Fit,
    fit_additive_reward,
)
from element_rl.studies.engine.grid import Cell, Findings, FinishedCell, Scale, Study
from element_rl.studies.engine.methods import SMOKE, cell_of
from element_rl.studies.engine.results import Curves, PointGroup, Scatter, Series, Table

SCALES = {
    "smoke": dataclasses.replace(SMOKE, screens=None),
    "small": Scale(("Ant-v5",), 1, {"Ant-v5": 1_000_000}),
    "paper": Scale(("Ant-v5",), 1, {"Ant-v5": 2_000_000}),
}


def cells_of(env: str, scale: Scale) -> list[Cell]:
    """SAC on the task: its history holds good and bad episodes, short and long ones."""
    replay_size = max(scale.steps.values()) + 2_000
    return [cell_of(env, "extrinsic", scale, reward="extrinsic", replay_size=replay_size)]


def analyse(done: Sequence[FinishedCell], scale: Scale) -> Findings:
    """A fit per environment, to all episodes of the run's first agent."""
    fits = {entry.cell.env: fit_additive_reward(*episodes_of(entry.run)) for entry in done}
    parts = {env: additivity_parts(fit, f"additivity_{env}") for env, fit in fits.items()}
    return Findings(
        sentences=tuple(
            f"{env}: {sentence}" for env, part in parts.items() for sentence in part[3]
        ),
        curves=tuple(part[0] for part in parts.values()),
        scatters=tuple(part[1] for part in parts.values()),
        tables=tuple(part[2] for part in parts.values()),
    )


def episodes_of(
    run: RunFolder, agent: int = 0
) -> tuple[Float[np.ndarray, "E T D"], Int[np.ndarray, " E"]]:
    """States s_1 … s_T of every complete episode in the replay of a run's newest checkpoint, padded
    with 0, and their lengths."""
    arrays = run.load_resume()[0]
    stored = arrays["learner/replay/state"]
    if not 0 <= agent < len(stored):
        raise RunError(
            f"The run {run.path} has agents 0 to {len(stored) - 1}, and no agent {agent}."
        )
    num_envs = run.config.get("settings", {}).get("envs_per_agent", 1)
    kept = [arrays[f"ledger/lengths_{agent * num_envs + env}"] for env in range(num_envs)]
    episodes = stored_episodes(arrays["ledger/running_start"], kept, agent, num_envs)
    if not episodes:
        raise RunError(
            f"The replay of the run {run.path} holds no complete episode: train it for longer."
        )
    starts, lengths = np.array(episodes, np.int64).T
    step = np.arange(lengths.max())
    slots = (starts[:, None] + num_envs * (1 + step[None, :])) % stored.shape[1]
    present = step[None, :] < lengths[:, None]
    return np.where(present[:, :, None], stored[agent, slots], np.float32(0)), lengths


def additivity_parts(
    fit: Fit, name: str = "additivity"
) -> tuple[Curves, Scatter, Table, tuple[str, ...]]:
    """The learning curve, predicted against true entropies, R² of all predictions, and findings,
    for `Results`."""
    return _curves(fit, name), _scatter(fit, name), _table(fit, name), _findings(fit)


def _curves(fit: Fit, name: str) -> Curves:
    epochs = tuple(float(epoch) for epoch in range(1, len(fit.training_error) + 1))
    by_length = fit.held_out.error(BY_LENGTH)
    series = (
        Series("training", epochs, tuple(fit.training_error.tolist())),
        Series("held out", epochs, tuple(fit.held_out_error.tolist())),
        Series("length alone, held out", epochs, (by_length,) * len(epochs)),
    )
    note = (
        "Root mean square error of the episode's entropy. Training: while the epoch went on. "
        f"Length alone: {BY_LENGTH}. The network of epoch {fit.epoch} is kept, by its error on "
        "other episodes than these."
    )
    return Curves(f"{name}_error", "Learning r_θ", "epochs", "error (bits)", series, note)


def _scatter(fit: Fit, name: str) -> Scatter:
    groups = tuple(
        PointGroup(
            label,
            tuple(part.entropy.round(4).tolist()),
            tuple(part.predicted[SUM].round(4).tolist()),
        )
        for label, part in (("training", fit.training), ("held out", fit.held_out))
    )
    r_squared = fit.held_out.r_squared()
    note = f"One point per episode. R² of the held-out ones: {_text(r_squared)}."
    title = "Entropy of an episode, predicted as a sum"
    return Scatter(
        f"{name}_scatter", title, "entropy (bits)", "Σ r_θ(s_t) (bits)", groups, True, note
    )


def _table(fit: Fit, name: str) -> Table:
    rows = tuple(
        (
            by,
            fit.held_out.r_squared(by),
            _r_squared_within(fit, by),
            fit.training.r_squared(by),
            fit.held_out.error(by),
        )
        for by in (SUM, BY_STEP, BY_LENGTH, MEAN)
    )
    columns = (
        "prediction",
        "R² held out",
        "R² held out, full length",
        "R² training",
        "error held out (bits)",
    )
    full = int(np.sum(fit.held_out.length == fit.full_length))
    note = (
        f"{len(fit.training.entropy):,} training and {len(fit.held_out.entropy):,} held-out "
        f"episodes; {full:,} of the held-out ones have the full {fit.full_length:,} steps. All but "
        "the first row look at no state; the last two are no sums."
    )
    return Table(name, "Predicting the entropy of an episode", columns, rows, note)


def _findings(fit: Fit) -> tuple[str, ...]:
    held_out = fit.held_out
    by_sum, by_length, by_step = map(_text, map(held_out.r_squared, (SUM, BY_LENGTH, BY_STEP)))
    first = (
        f"A reward learned per state predicts the entropy of {len(held_out.entropy):,} held-out "
        f"episodes by its sum with R² {by_sum} (error {held_out.error():.2f} bits); their length "
        f"alone gives {by_length}, a constant reward per step {by_step}."
    )
    length, within = f"the full {fit.full_length:,} steps", _r_squared_within(fit, SUM)
    if within is None:
        return first, f"Too few held-out episodes have {length} to say more of those alone."
    full = int(np.sum(held_out.length == fit.full_length))
    return (
        first,
        f"Among the {full:,} held-out episodes of {length}, where length tells nothing, R² is "
        f"{_text(within)}.",
    )


def _r_squared_within(fit: Fit, by: str) -> float | None:
    """R² of the held-out episodes of full length, if they are not too few for it."""
    enough = np.sum(fit.held_out.length == fit.full_length) >= FEWEST_EPISODES
    return fit.held_out.r_squared(by, fit.full_length) if enough else None


def _text(r_squared: float | None) -> str:
    return "–" if r_squared is None else f"{r_squared:.3f}"


STUDY = Study(
    "additivity",
    "Is episodic entropy a sum over states?",
    "ELEMENT pays every state of an episode a share of its entropy. Is there a reward of states "
    "whose sum over an episode is the episode's entropy?",
    SCALES,
    cells_of,
    analyse,
)
