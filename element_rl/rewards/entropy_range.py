"""Can the episodic entropy tell episodes apart? Blind, informative or saturated, and which
bandwidth would do.

The kernel κ(x, y) = exp(−‖x−y‖² / (2σ)) of the Rényi and KDE estimators sees two states as
different when they are farther apart than about √σ. States of an environment in other units make it
blind (all states look the same) or saturated (every state looks new, whatever the agent does). The
kNN estimator has no bandwidth and is neither.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from element_rl.entropy import kde_entropy, renyi_entropy
from element_rl.rewards.interface import EntropyKernel

BLIND = 0.01  # share of log2 T below which an episode counts as one state
SATURATED = 0.95  # share of log2 T above which nothing is left to climb
STRANGERS = 0.2  # kernel of two successive states below which they look like two places
SHORTEST = 16  # states: shorter episodes are not judged
COMPARED = 1000  # states of an episode, at most, whose distances are compared

Verdict = Literal["blind", "informative", "saturated"]


def entropy_range(share: float, successive: float | None = None) -> Verdict:
    """What an entropy that is `share` of its ceiling log T can say of an episode of T states.

    An entropy of H bits is that of 2^H states far apart from each other, so a share counts T^share
    different states.

    blind       share < 0.01: of 1,000 states 1.07 are different. Then H is about the variance of
                the states over σ: it cannot tell two places from one that is twice as wide.
    saturated   share > 0.95: of 1,000 states more than 708 are different, and T^0.05 − 1 = 0.41 is
                the kernel that a state has with all others together.

    Where the mean kernel of two `successive` states is known, saturated is also one below 0.2 =
    0.41 / 2: a state has two neighbours in time, the nearest there are, and they alone would take
    it to the same 0.41. One step leads nowhere new, so what looks new after one step is noise or a
    matter of units. This shows early, when random actions have not yet led to all there is; the
    share of their episodes says little.
    """
    if share < BLIND:
        return "blind"
    if share > SATURATED or (successive is not None and successive < STRANGERS):
        return "saturated"
    return "informative"


class SeenEpisodes(NamedTuple):
    """What the episodic reward sees of some episodes; means over them."""

    verdict: Verdict
    length: float  # states
    bits: float  # of the reward's own estimator
    ceiling: float  # log2 of the length
    successive: float  # kernel of two successive states
    bandwidth: float  # in use
    advised: float | None  # bandwidth that would do; None where all states are equal


def seen_episodes(
    episodes: Sequence[Float[np.ndarray, "_ D"]], kernel: EntropyKernel | None
) -> SeenEpisodes | None:
    """How an entropy with this kernel sees episodes of states; None where there is nothing to
    judge.

    That is without a kernel, and with episodes of fewer than 16 states alone.
    """
    episodes = [states for states in episodes if len(states) >= SHORTEST]
    if kernel is None or not episodes:
        return None
    ceilings = [math.log2(len(states)) for states in episodes]
    bits = [_entropy_bits(states, kernel) for states in episodes]
    successive = float(
        np.mean([successive_kernel(states, kernel.bandwidth) for states in episodes])
    )
    share = float(np.mean([one / ceiling for one, ceiling in zip(bits, ceilings, strict=True)]))
    advised = [
        bandwidth for states in episodes if (bandwidth := fitting_bandwidth(states)) is not None
    ]
    return SeenEpisodes(
        verdict=entropy_range(share, successive),
        length=float(np.mean([len(states) for states in episodes])),
        bits=float(np.mean(bits)),
        ceiling=float(np.mean(ceilings)),
        successive=successive,
        bandwidth=kernel.bandwidth,
        advised=_rounded(float(np.median(advised))) if advised else None,
    )


def fitting_bandwidth(states: Float[np.ndarray, "T D"]) -> float | None:
    """σ = the median squared distance of two states of an episode, so that a typical pair has the
    kernel e^(−1/2) = 0.61.

    An episode of random actions then has an entropy of about one bit in any units: enough to be
    told from none, and far below the ceiling. Where most states are equal it is the mean over those
    that differ; None where all are equal.
    """
    some = np.asarray(states[:: -(-len(states) // COMPARED)], np.float64)
    norms = np.sum(some**2, axis=1)
    squared = np.maximum(norms[:, None] + norms[None, :] - 2.0 * some @ some.T, 0.0)
    squared = squared[~np.eye(len(some), dtype=bool)]
    # What rounding leaves of the difference of large squares is no distance.
    differing = squared[squared > 1e-12 * max(float(norms.max()), 1e-300)]
    if not len(differing):
        return None
    return (
        float(np.median(squared))
        if 2 * len(differing) > len(squared)
        else float(np.mean(differing))
    )


def successive_kernel(states: Float[np.ndarray, "T D"], bandwidth: float) -> float:
    """The mean kernel of two states that follow each other."""
    squared = np.sum(np.diff(np.asarray(states, np.float64), axis=0) ** 2, axis=1)
    return float(np.mean(np.exp(-squared / (2.0 * bandwidth))))


def sentence(seen: SeenEpisodes | None) -> str:
    """One line on what is wrong; empty where nothing is."""
    if seen is None or seen.verdict == "informative":
        return ""
    if seen.verdict == "blind":
        return (
            f"Episodic entropy is blind: at bandwidth {seen.bandwidth:g} the {seen.length:,.0f} "
            f"states of an episode count as {2**seen.bits:.2f} ({seen.bits:.2g} of "
            f"{seen.ceiling:.1f} bits)."
        )
    return (
        f"Episodic entropy is saturated: at bandwidth {seen.bandwidth:g} even successive states "
        f"look different (kernel {seen.successive:.2g}; {seen.bits:.1f} of {seen.ceiling:.1f} "
        "bits)."
    )


def advice(seen: SeenEpisodes, as_options: bool = False) -> str:
    """What to change: flags of `element explore`, or `--reward-options` where a command has no such
    flags."""
    if seen.advised is None:
        return "All states of an episode are equal: look at what the state is made of."
    if as_options:
        return f"Use --reward-options bandwidth={seen.advised:g}, or estimator=knn."
    return f"Use --bandwidth {seen.advised:g}, or --estimator knn."


def line(seen: SeenEpisodes | None, as_options: bool = False) -> str:
    """Both in one line; empty where nothing is wrong."""
    said = sentence(seen)
    return f"{said} {advice(seen, as_options)}" if said and seen is not None else ""


def evaluation_sentence(share: float, of_reward: Verdict | None = None) -> str:
    """The same of the entropy that is logged, of order 1.001 with σ = 1 whatever the reward; empty
    where nothing is wrong. `of_reward`: what is known of the reward's own."""
    verdict = entropy_range(share)
    if verdict == "informative":
        return ""
    meaning = "all states look the same" if verdict == "blind" else "every state looks new"
    return (
        f"The logged episodic entropy (σ = 1, whatever the reward's) is {share:.2g} of its ceiling "
        f"log2 T: {meaning} to it. It cannot tell episodes apart."
        + (" The reward's own entropy can." if of_reward == "informative" else "")
    )


def _rounded(value: float) -> float:
    """To one significant digit: the choice is not finer than that."""
    return float(f"{value:.0e}")


def _entropy_bits(states: Float[np.ndarray, "T D"], kernel: EntropyKernel) -> float:
    # padded to a power of two, so that few programs are compiled
    length = 1 << max(len(states) - 1, 63).bit_length()
    padded = np.pad(np.asarray(states, np.float32), ((0, length - len(states)), (0, 0)))
    mask = jnp.asarray(np.arange(length) < len(states))
    bandwidth = np.float32(kernel.bandwidth)
    return float(_bits(jnp.asarray(padded), mask, bandwidth, kernel.renyi_order))


@partial(jax.jit, static_argnames="order")
def _bits(
    states: Float[Array, "T D"],
    mask: Bool[Array, " T"],
    bandwidth: Float[Array, ""],
    order: float | None,
) -> Float[Array, ""]:
    """By the Rényi estimator of an order, or with None by the kernel density, in bits too."""
    if order is None:
        return kde_entropy(states, bandwidth, mask) / math.log(2.0)
    return renyi_entropy(states, order, bandwidth, mask)
