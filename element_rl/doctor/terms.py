"""Is a reward finite, does it vary, are its terms balanced, and do states that were seldom visited
earn more?"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from jaxtyping import Float
from scipy.spatial import cKDTree

from element_rl.doctor.findings import Finding, checked
from element_rl.doctor.trial import Judgement, Trial

SMALLEST_SHARE = 0.05  # of the reward's variance, below which a term has no say
PARTS = ("reward_episodic", "reward_lifelong")
# the distance to so many of the collected states says how often a state was visited
NEIGHBOURS = 10
TENTH = 0.1
SMALLEST_DEVIATION, LARGEST_DEVIATION = 0.01, 100.0  # of a reward that SAC can be given as it is
# share of the variance that a weighted sum of the terms must explain to be called one
ADDITIVE = 0.99


def check_terms(trial: Trial, judgement: Judgement) -> Iterator[Finding]:
    """Checks of the rewards of a trial; the first that fails is the last."""
    finite = check_finite(judgement)
    yield finite
    if finite.status == "fail":
        return
    varied = check_varied(judgement)
    yield varied
    if varied.status == "fail":
        return
    yield check_balance(judgement)
    yield check_novelty(trial, judgement)


def check_finite(judgement: Judgement) -> Finding:
    """No NaN, no infinity."""
    parts = {"reward": judgement.reward, **judgement.terms}
    wrong = {name: int(np.sum(~np.isfinite(values))) for name, values in parts.items()}
    counts = ", ".join(f"{name} in {count:,}" for name, count in wrong.items() if count)
    if counts:
        sentence = f"Of {len(judgement.reward):,} rewards some are NaN or infinite: {counts}."
        advice = (
            "Look for logarithms of 0 and divisions by 0 in the reward, and for observations that "
            "grow without bound."
        )
        return Finding("finite", "fail", sentence, advice, {"not_finite": wrong})
    low, high = float(judgement.reward.min()), float(judgement.reward.max())
    sentence = f"All {len(judgement.reward):,} rewards are finite, from {low:.3g} to {high:.3g}."
    return Finding("finite", "ok", sentence, values={"minimum": low, "maximum": high})


def check_varied(judgement: Judgement) -> Finding:
    """Rewards tell transitions apart."""
    deviation, size = float(np.std(judgement.reward)), float(np.max(np.abs(judgement.reward)))
    values = {"deviation": deviation}
    if deviation <= 1e-6 * max(size, 1e-6):
        same = f"Every transition earns the same, {float(judgement.reward[0]):.3g}"
        sentence = f"{same}: nothing can be learned from that."
        advice = (
            "Try more --steps; if it stays so, the reward does not look at the states, or sees no "
            "difference between them."
        )
        return Finding("varied", "fail", sentence, advice, values)
    sentence = f"Rewards vary: mean {np.mean(judgement.reward):.3g} ± {deviation:.2g}."
    advice = (
        "SAC weighs the reward against the entropy of its policy, so its size matters: "
        "--recent-scale of element explore, or recent_scale=True, brings it to about 1."
    )
    usable = SMALLEST_DEVIATION <= deviation <= LARGEST_DEVIATION
    return checked("varied", usable, sentence, advice, values)


def check_balance(judgement: Judgement) -> Finding:
    """Every term has a say in the reward."""
    # in a sum of rewards, both are parts of one of its terms
    summed = {name: term for name, term in judgement.terms.items() if name not in PARTS}
    judgement = replace(judgement, terms=summed) if summed else judgement
    names = list(judgement.terms)
    if len(names) == 1:
        return Finding("balanced", "ok", f"The reward has one term, {names[0]}.")
    weights, explained = fitted_weights(judgement)
    if explained < ADDITIVE:
        sentence = f"The reward is no weighted sum of its terms, {' and '.join(names)}."
        return Finding("balanced", "ok", sentence)
    spread = np.array([np.var(judgement.terms[name]) for name in names])
    contributions = weights**2 * spread
    shares = contributions / max(contributions.sum(), 1e-30)
    values = {
        "shares": dict(zip(names, shares.tolist(), strict=True)),
        "weights": dict(zip(names, weights.tolist(), strict=True)),
    }
    constant = [name for name, variance in zip(names, spread, strict=True) if variance <= 1e-12]
    if constant:
        verb = "is" if len(constant) == 1 else "are"
        sentence = f"{' and '.join(constant)} {verb} the same for all transitions."
        advice = (
            "Try more --steps: a lifelong term needs a past (ELEMENT remembers states from a tenth "
            "of the steps on)."
        )
        return Finding("balanced", "warn", sentence, advice, values)
    weak = [
        name
        for name, share, weight in zip(names, shares, weights, strict=True)
        if share < SMALLEST_SHARE and abs(weight) > 1e-3
    ]
    listed = ", ".join(f"{name} {share:.0%}" for name, share in zip(names, shares, strict=True))
    advice = f"Give {' and '.join(weak)} more weight"
    if not summed:
        advice += (
            " (--beta, --episodic-weight; lifelong_weight and episodic_weight among a bonus's "
            "options), or scale terms by --normalisation standard"
        )
    sentence = f"Shares of the reward's variance: {listed}."
    return checked("balanced", not weak, sentence, f"{advice}.", values)


def fitted_weights(judgement: Judgement) -> tuple[Float[np.ndarray, " K"], float]:
    """The weights with which the terms add up to the reward, by least squares, and the share of
    variance they explain."""
    terms = np.stack([values.astype(np.float64) for values in judgement.terms.values()], axis=1)
    terms, reward = (
        terms - terms.mean(axis=0),
        judgement.reward.astype(np.float64) - np.mean(judgement.reward),
    )
    weights = np.linalg.lstsq(terms, reward, rcond=1e-9)[0]
    rest = reward - terms @ weights
    return weights, float(1.0 - np.var(rest) / np.var(reward))


def check_novelty(trial: Trial, judgement: Judgement) -> Finding:
    """States in the emptiest tenth of those collected earn more than those in the fullest."""
    states = trial.states()
    distances = cKDTree(states).query(states, k=min(NEIGHBOURS + 1, len(states)))[0][:, -1]
    emptiness = distances[judgement.ids]
    low, high = np.quantile(emptiness, (TENTH, 1 - TENTH))
    new, old = judgement.reward[emptiness >= high], judgement.reward[emptiness <= low]
    difference = float((new.mean() - old.mean()) / np.std(judgement.reward))
    values = {
        "seldom_visited": float(new.mean()),
        "often_visited": float(old.mean()),
        "difference": difference,
    }
    sentence = (
        f"The seldom visited tenth of the states earns {new.mean():.3g}, the often visited "
        f"{old.mean():.3g}: {abs(difference):.1f} standard deviations "
        f"{'more' if difference >= 0 else 'less'}."
    )
    advice = (
        "Random actions may be too few to tell: try more --steps. If it stays so, look at what the "
        "state is made of."
    )
    return checked("new states", difference > 0, sentence, advice, values)
