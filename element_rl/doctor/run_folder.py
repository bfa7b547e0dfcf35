"""What the metrics of a run say: was the reward finite and balanced, is there still exploration in
it?"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from element_rl.doctor.findings import Finding, checked
from element_rl.rewards.entropy_range import entropy_range
from element_rl.rewards.expression import names_in
from element_rl.runs.folder import RunError, RunFolder

LEARNED = (
    "reward_episodic",
    "reward_lifelong",
    "critic_loss",
    "actor_loss",
    "q_mean",
    "temperature",
    "policy_entropy",
)
ELEMENTS = ("element", "element-paper")
PAPER = {"reward_episodic": 1.0, "reward_lifelong": 0.5}  # weights where a run does not say
SMALLEST_SHARE = 0.05  # of the reward, below which a term has no say
COLLAPSED, LOW = 1e-4, 1e-3  # temperatures; SAC begins at 0.2
GROWTH = 0.01  # of coverage, in the last fifth of a run, below which it has stopped
# growth of episodes, and below the correlation of length and entropy, that mean: survival is
# rewarded
LONGER = 1.2
TOGETHER = 0.5

Metrics = Mapping[str, np.ndarray]


def opened_run(path: Path) -> tuple[RunFolder, Metrics]:
    """A run folder that `element explore`, `on-policy`, `mario` or `finetune` wrote, and its
    metrics."""
    run = RunFolder.open(path)
    metrics = run.read_metrics()
    if not {"step", "seed", "episode_length", "episodic_entropy"} <= metrics.keys():
        raise RunError(
            f"The run {path} has logged nothing an explorer would: give one of element explore or "
            "on-policy."
        )
    return run, metrics


def check_run(run: RunFolder, metrics: Metrics) -> Iterator[Finding]:
    """All checks of a run."""
    settings, summary = run.config.get("settings", {}), run.read_summary()
    yield check_files(run)
    yield check_finite(metrics)
    checks = (
        check_terms(metrics, settings),
        check_memory(metrics, settings),
        check_temperature(metrics),
        check_coverage(metrics, summary),
        check_survival(metrics),
        check_saturation(metrics, settings),
    )
    yield from (finding for finding in checks if finding is not None)


def check_files(run: RunFolder) -> Finding:
    """Every file of every checkpoint is as its manifest has it, and all others can be read."""
    if damaged := run.damaged_files():
        sentence = f"{len(damaged)} of its files are damaged: {damaged[0]}"
        advice = "Restore them from a copy; what is whole can still be used."
        return Finding("files", "fail", sentence, advice, {"files": damaged})
    number = len(run.checkpoint_steps())
    return Finding("files", "ok", f"Every file of {number} checkpoints is as it was written.")


def check_finite(metrics: Metrics) -> Finding:
    """What was learned stayed finite."""
    for name in LEARNED:
        for seed, (steps, values) in by_seed(metrics, name).items():
            finite = np.isfinite(values)
            begun = np.logical_or.accumulate(finite)  # columns are empty until learning begins
            lost = np.flatnonzero(np.isinf(values) | (begun & ~finite))
            if len(lost):
                step = int(steps[lost[0]])
                sentence = f"{name} of seed {seed} is NaN or infinite from step {step:,} on."
                advice = (
                    "Start again from a checkpoint before that with a smaller learning rate, and "
                    "look at the reward."
                )
                where = {"column": name, "seed": seed, "step": step}
                return Finding("finite", "fail", sentence, advice, where)
    sentence = f"{len(metrics['step']):,} lines of metrics are finite where they should be."
    return Finding("finite", "ok", sentence)


def check_terms(metrics: Metrics, settings: Mapping[str, Any]) -> Finding | None:
    """Both terms of ELEMENT have a say, in the second half of the run."""
    means = {
        name: _late_mean(metrics, name, 0.5) for name in ("reward_episodic", "reward_lifelong")
    }
    if (
        not _pays_element(settings)
        or None in means.values()
        or settings.get("normalisation") == "standard"
    ):
        return None
    given = {
        "reward_episodic": settings.get("episodic_weight"),
        "reward_lifelong": settings.get("beta"),
    }
    weights = {name: PAPER[name] if weight is None else weight for name, weight in given.items()}
    parts = {name: weights[name] * float(means[name] or 0.0) for name in means}
    total = max(sum(parts.values()), 1e-12)
    shares = {name: part / total for name, part in parts.items()}
    listed = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    sentence = f"Shares of the mean reward in the second half: {listed}."
    weak = [name for name, share in shares.items() if share < SMALLEST_SHARE and weights[name] > 0]
    advice = (
        f"Give {' and '.join(weak)} more weight (--beta, --episodic-weight), or use "
        "--normalisation standard."
    )
    return checked("balanced", not weak, sentence, advice, {"shares": shares})


def check_memory(metrics: Metrics, settings: Mapping[str, Any]) -> Finding | None:
    """The lifelong memory took states in."""
    if (
        not _pays_element(settings)
        or settings.get("beta") == 0
        or not len(metrics.get("memory_size", ()))
    ):
        return None
    size, last = int(np.nanmax(metrics["memory_size"])), int(metrics["step"].max())
    sentence = f"The lifelong memory holds {size:,} states."
    if size == 0:
        sentence = (
            f"The lifelong memory is still empty at step {last:,}, so the lifelong reward is 0."
        )
    windows = settings.get("remember", "windows") == "windows"  # older runs say nothing of it
    interval = settings.get("update_interval") if windows else None
    advice = (
        f"Its first window opens at step {interval:,}: run longer, or give --update-interval."
        if interval
        else ""
    )
    return checked("memory", size > 0, sentence, advice, {"memory_size": size})


def check_temperature(metrics: Metrics) -> Finding | None:
    """SAC's temperature has not collapsed: its policy still acts at random to some degree."""
    lowest = {
        seed: float(column[np.isfinite(column)][-1])
        for seed, (_, column) in by_seed(metrics, "temperature").items()
        if np.isfinite(column).any()
    }
    if not lowest:
        return None
    seed, value = min(lowest.items(), key=lambda item: item[1])
    values = {"temperature": lowest}
    if value >= LOW:
        sentence = f"SAC's temperature ended at {value:.2g} or above."
        return Finding("temperature", "ok", sentence, values=values)
    sentence = (
        f"SAC's temperature of seed {seed} has collapsed to {value:.1g}: the size of the reward "
        "went to nothing."
    )
    advice = (
        "Look whether the reward is near 0 (figure reward_terms of element plot). Give it more "
        "size (--reward-scale, --recent-scale), or hold the temperature: "
        "--sac.temperature-learning-rate 0."
    )
    return Finding("temperature", "fail" if value < COLLAPSED else "warn", sentence, advice, values)


def check_coverage(metrics: Metrics, summary: Mapping[str, Any]) -> Finding | None:
    """Coverage still grows, and is above a random policy's."""
    now, before = {}, {}
    for seed, (steps, cells) in by_seed(metrics, "coverage").items():
        known = np.isfinite(cells)
        if known.any():
            now[seed] = float(cells[known][-1])
            before[seed] = float(np.interp(0.8 * steps[-1], steps[known], cells[known]))
    if not now:
        return None
    growth = float(np.mean([(now[seed] - before[seed]) / max(now[seed], 1.0) for seed in now]))
    covered = float(np.mean(list(now.values())))
    sentence = f"{covered:,.0f} cells, {growth:.1%} of them in the last fifth of the run"
    at_random = (summary.get("random_policy") or {}).get("coverage", [])
    random = [cells for cells in at_random if cells is not None]
    values = {"coverage": now, "growth": growth, "random_policy": random}
    if random and covered < np.mean(random):
        sentence = (
            f"{covered:,.0f} cells; a random policy covers {np.mean(random):,.0f} in as many steps."
        )
        advice = (
            "A policy that learns acts less at random at first: train longer before you judge. "
            "Then look at the terms."
        )
        return Finding("coverage", "warn", sentence, advice, values)
    if growth < GROWTH:
        advice = (
            "Either the map is full, or exploration has stopped: look at the density map of "
            "element plot, and at beta."
        )
        return Finding("coverage", "warn", f"{sentence}: it has stopped growing.", advice, values)
    return Finding("coverage", "ok", f"{sentence}.", values=values)


def check_survival(metrics: Metrics) -> Finding | None:
    """Episodes do not grow longer merely because living longer has more entropy."""
    found = {}
    for seed, (_, lengths) in by_seed(metrics, "episode_length").items():
        entropy = by_seed(metrics, "episodic_entropy")[seed][1]
        known = np.isfinite(lengths) & np.isfinite(entropy)
        lengths, entropy = lengths[known], entropy[known]
        if len(lengths) >= 8 and np.std(lengths) > 0.05 * np.mean(lengths) and np.std(entropy) > 0:
            quarter = len(lengths) // 4
            correlation = float(np.corrcoef(lengths, entropy)[0, 1])
            first, last = lengths[:quarter].mean(), lengths[-quarter:].mean()
            found[seed] = (float(first), float(last), correlation)
    if not np.isfinite(metrics["episode_length"]).any():
        advice = "Train longer than one episode lasts."
        return Finding("episodes", "warn", "No episode has ended yet.", advice)
    if not found:
        mean = float(np.nanmean(metrics["episode_length"]))
        return Finding("episodes", "ok", f"Episodes have much the same length, {mean:,.0f} steps.")
    first, last, correlation = (float(np.mean(part)) for part in zip(*found.values(), strict=True))
    sentence = (
        f"Episodes went from {first:,.0f} to {last:,.0f} steps; length and entropy correlate by "
        f"{correlation:.2f}"
    )
    values = {"first": first, "last": last, "correlation": correlation}
    if last > LONGER * first and correlation > TOGETHER:
        advice = (
            "Keep episodes of one length (--falls ignore for robots), let returns go on after them "
            "(--falls reset), or take away what living alone earns: --sac.reward-centring 0.5, or "
            "--length-weighted."
        )
        sentence = f"{sentence}: the agent may be paid for staying alive."
        return Finding("episodes", "warn", sentence, advice, values)
    return Finding("episodes", "ok", f"{sentence}.", values=values)


def check_saturation(metrics: Metrics, settings: Mapping[str, Any]) -> Finding | None:
    """Episode entropy, as it is logged, is neither near 0 nor at its ceiling."""
    share = _late_mean(metrics, "entropy_saturation", 0.9)
    if share is None:
        return None
    verdict = entropy_range(share)
    values = {"saturation": share, "verdict": verdict}
    ending = {"blind": ": blind, it cannot tell states apart", "saturated": ": saturated"}
    sentence = (
        f"Episodes have {share:.2g} of the entropy that their length allows (logged with "
        f"bandwidth 1){ending.get(verdict, '')}."
    )
    advice = _bandwidth_advice(settings)
    return checked("saturation", verdict == "informative", sentence, advice, values)


def _bandwidth_advice(settings: Mapping[str, Any]) -> str:
    """What to do about a logged entropy that says nothing: the reward has an estimator and a
    bandwidth of its own."""
    reward, bandwidth = settings.get("reward"), settings.get("bandwidth")
    by_neighbours = settings.get("estimator") == "knn"
    doctor = f"element doctor {settings.get('env')}"
    silent = "It says nothing of these episodes; the reward"
    if not _pays_element(settings):
        return f"{silent} {reward} does not use it. Look at coverage."
    if "element" not in names_in(str(reward)):
        return f"{reward} has the paper's bandwidth: --reward element takes others."
    if by_neighbours or bandwidth not in (None, 1.0):
        used = "has no bandwidth" if by_neighbours else f"has bandwidth {bandwidth:g}"
        return f"{silent} {used}: {doctor} tells what it sees."
    return f"Use another --bandwidth ({doctor} tells one that fits), or --estimator knn."


def _pays_element(settings: Mapping[str, Any]) -> bool:
    """Whether the reward is ELEMENT, or a sum that has it."""
    reward = settings.get("reward")
    return isinstance(reward, str) and not set(ELEMENTS).isdisjoint(names_in(reward))


def by_seed(metrics: Metrics, name: str) -> dict[int, tuple[np.ndarray, Float[np.ndarray, " T"]]]:
    """Steps and values of a column, per seed; nothing where there is no such column."""
    if name not in metrics:
        return {}
    seeds = metrics["seed"]
    return {
        int(seed): (metrics["step"][seeds == seed], metrics[name][seeds == seed])
        for seed in np.unique(seeds)
    }


def _late_mean(metrics: Metrics, name: str, share: float) -> float | None:
    """The mean of a column from `share` of the steps on; None where there is nothing."""
    if name not in metrics or not len(metrics["step"]):
        return None
    late = metrics[name][metrics["step"] >= share * metrics["step"].max()]
    return float(np.nanmean(late)) if np.isfinite(late).any() else None
