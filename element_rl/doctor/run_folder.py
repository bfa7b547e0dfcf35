"""What the metrics of a run say: was the reward finite and balanced, is there still exploration in
it?"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from element_rl.doctor.findings import Finding
from element_rl.rewards.entropy_range import entropy_range
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


def check_finite(metrics: Metrics) -> Finding:
    """What was learned stayed finite."""
    for name in LEARNED:
        for seed, (steps, values) in by_seed(metrics, name).items():
            known = np.flatnonzero(np.isfinite(values))
            lost = (
                np.flatnonzero(~np.isfinite(values[known[0] :])) if len(known) else np.zeros(0, int)
            )
            if len(lost) or np.isinf(values).any():
                step = int(
                    steps[
                        np.flatnonzero(np.isinf(values))[0] if not len(lost) else known[0] + lost[0]
                    ]
                )
                said = f"{name} of seed {seed} is NaN or infinite from step {step:,} on."
                advice = "Start again from a checkpoint before that with a smaller learning rate, and look at the reward."
                return Finding(
                    "finite", "fail", said, advice, {"column": name, "seed": seed, "step": step}
                )
    return Finding(
        "finite",
        "ok",
        f"{len(metrics['step']):,} lines of metrics are finite where they should be.",
    )


def check_terms(metrics: Metrics, settings: Mapping[str, Any]) -> Finding | None:
    """Both terms of ELEMENT have a say, in the second half of the run."""
    means = {
        name: _late_mean(metrics, name, 0.5) for name in ("reward_episodic", "reward_lifelong")
    }
    if (
        settings.get("reward") != "element"
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
    said = (
        "Shares of the mean reward in the second half: "
        + ", ".join(f"{n} {s:.0%}" for n, s in shares.items())
        + "."
    )
    weak = [name for name, share in shares.items() if share < SMALLEST_SHARE and weights[name] > 0]
    if weak:
        advice = f"Give {' and '.join(weak)} more weight (--beta, --episodic-weight), or use --normalisation standard."
        return Finding("balanced", "warn", said, advice, {"shares": shares})
    return Finding("balanced", "ok", said, values={"shares": shares})


def check_memory(metrics: Metrics, settings: Mapping[str, Any]) -> Finding | None:
    """The lifelong memory took states in."""
    if (
        settings.get("reward") != "element"
        or settings.get("beta") == 0
        or not len(metrics.get("memory_size", ()))
    ):
        return None
    size, last = int(np.nanmax(metrics["memory_size"])), int(metrics["step"].max())
    interval = settings.get("update_interval")
    if size == 0:
        said = f"The lifelong memory is still empty at step {last:,}, so the lifelong reward is 0."
        advice = (
            f"Its first window opens at step {interval:,}: run longer, or give --update-interval."
            if interval
            else ""
        )
        return Finding("memory", "warn", said, advice, {"memory_size": 0})
    return Finding(
        "memory", "ok", f"The lifelong memory holds {size:,} states.", values={"memory_size": size}
    )


def check_temperature(metrics: Metrics) -> Finding | None:
    """SAC's temperature has not collapsed: its policy still acts at random to some degree."""
    lowest = {
        seed: float(v[np.isfinite(v)][-1])
        for seed, (_, v) in by_seed(metrics, "temperature").items()
        if np.isfinite(v).any()
    }
    if not lowest:
        return None
    seed, value = min(lowest.items(), key=lambda item: item[1])
    values = {"temperature": lowest}
    if value >= LOW:
        return Finding(
            "temperature", "ok", f"SAC's temperature ended at {value:.2g} or above.", values=values
        )
    said = f"SAC's temperature of seed {seed} has collapsed to {value:.1g}: the size of the reward went to nothing."
    advice = (
        "Look whether the reward is near 0 (figure reward_terms of element plot). Give it more "
        "size (--reward-scale, "
        "--recent-scale), or hold the temperature: --sac.temperature-learning-rate 0."
    )
    return Finding("temperature", "fail" if value < COLLAPSED else "warn", said, advice, values)


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
    said = f"{covered:,.0f} cells, {growth:.1%} of them in the last fifth of the run"
    random = [
        cells
        for cells in (summary.get("random_policy") or {}).get("coverage", [])
        if cells is not None
    ]
    values = {"coverage": now, "growth": growth, "random_policy": random}
    if random and covered < np.mean(random):
        said = (
            f"{covered:,.0f} cells; a random policy covers {np.mean(random):,.0f} in as many steps."
        )
        advice = "A policy that learns acts less at random at first: train longer before you judge. Then look at the terms."
        return Finding("coverage", "warn", said, advice, values)
    if growth < GROWTH:
        advice = "Either the map is full, or exploration has stopped: look at the density map of element plot, and at beta."
        return Finding("coverage", "warn", f"{said}: it has stopped growing.", advice, values)
    return Finding("coverage", "ok", f"{said}.", values=values)


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
            found[seed] = (
                float(lengths[:quarter].mean()),
                float(lengths[-quarter:].mean()),
                correlation,
            )
    if not found:
        mean = (
            float(np.nanmean(metrics["episode_length"]))
            if np.isfinite(metrics["episode_length"]).any()
            else np.nan
        )
        if not np.isfinite(mean):
            return Finding(
                "episodes",
                "warn",
                "No episode has ended yet.",
                "Train longer than one episode lasts.",
            )
        return Finding("episodes", "ok", f"Episodes have much the same length, {mean:,.0f} steps.")
    first, last, correlation = (float(np.mean(part)) for part in zip(*found.values(), strict=True))
    said = f"Episodes went from {first:,.0f} to {last:,.0f} steps; length and entropy correlate by {correlation:.2f}"
    values = {"first": first, "last": last, "correlation": correlation}
    if last > LONGER * first and correlation > TOGETHER:
        advice = (
            "Keep episodes of one length (--env-options terminate_when_unhealthy=false for "
            "robots), or take away what "
            "living alone earns: --sac.reward-centring 0.5, or --length-weighted."
        )
        return Finding(
            "episodes", "warn", f"{said}: the agent may be paid for staying alive.", advice, values
        )
    return Finding("episodes", "ok", f"{said}.", values=values)


def check_saturation(metrics: Metrics, settings: Mapping[str, Any]) -> Finding | None:
    """Episode entropy, as it is logged, is neither near 0 nor at its ceiling."""
    share = _late_mean(metrics, "entropy_saturation", 0.9)
    if share is None:
        return None
    verdict = entropy_range(share)
    values = {"saturation": share, "verdict": verdict}
    said = f"Episodes have {share:.2g} of the entropy that their length allows (logged with bandwidth 1)."
    if verdict == "informative":
        return Finding("saturation", "ok", said, values=values)
    said = f"{said[:-1]}: {'blind, it cannot tell states apart' if verdict == 'blind' else 'saturated'}."
    return Finding("saturation", "warn", said, _bandwidth_advice(settings), values)


def _bandwidth_advice(settings: Mapping[str, Any]) -> str:
    """What to do about a logged entropy that says nothing: the reward has an estimator and a
    bandwidth of its own."""
    if settings.get("reward") != "element":
        return f"It says nothing of these episodes; the reward {settings.get('reward')} does not use it. Look at coverage."
    own = settings.get("bandwidth")
    if settings.get("estimator") == "knn" or own not in (None, 1.0):
        used = (
            "has no bandwidth" if settings.get("estimator") == "knn" else f"has bandwidth {own:g}"
        )
        return f"It says nothing of these episodes; the reward {used}: element doctor {settings.get('env')} tells what it sees."
    return f"Use another --bandwidth (element doctor {settings.get('env')} tells one that fits), or --estimator knn."


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
