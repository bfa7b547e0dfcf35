"""Pseudo-counts: the fewer visits a state has had in all of training, the more a visit pays
(#Exploration, Tang et al., 2017).

https://arxiv.org/abs/1611.04717. States are counted by a hash of them, which never changes:

    r(s') = c / √max(n(φ(s')), 1)                       n: visits so far, over all of training
    φ(s)  = ⌊(D x(s)) / w + b⌋                          hash "cells" (`visit_cells.py`), the default
    φ(s)  = sign(D x(s))                                hash "simhash", the paper's: K bits
    x(s)  = (s − mean) / std                            by the moments of the first steps

Every state of an episode is counted when the episode ends, the first one included, and the reward
of a transition is computed with the counts of the moment, whenever it is sampled. So it falls with
every visit, and to stand still is not new. Counts do not forget.

Counts are kept in M tables of S slots, which a state's code is hashed into, differently for each;
n is the least of its M counts (Cormode and Muthukrishnan, 2005: count–min). A count is therefore
never too small, and too large only where a code shares its slot with another in every table: with
a share p of slots in use, that is p^M of the codes that are new.

What else is called so: Bellemare et al., 2016 (https://arxiv.org/abs/1606.01868) take pseudo-counts
from a density model, n = ρ (1 − ρ') / (ρ' − ρ) for a state of density ρ before and ρ' after it is
seen, and pay c / √(n + 0.01). A histogram is such a model: there n is the count of its cell, which
is what this file has. RLeXplore's "PseudoCounts" are the episodic half of NGU, a kernel sum over
the neighbours in the same episode, and no count over training: `ngu` with `max_modulator=1`.

Settings: the paper has K = 16 to 256 bits of SimHash, its code 128 and six tables of some 10⁶
slots, and c = 0.01 beside the task's reward. Here c = 1, for the bonus is all there is, and four
tables of 2¹⁸.

Departures:
1. SAC instead of TRPO; n grows when episodes end and is read when transitions are sampled. In the
   paper both happen once, for the batch of an iteration.
2. The hash tells places apart by their distance. The signs of projections, `hash="simhash"`, tell
   directions apart: in a plane K of them make 2K sectors around the mean, and all of a ray is one.
3. Observations are whitened, by moments that stay as they are once `calibration_steps` transitions
   were seen, or a tenth of a short run: a hash that drifts would lose its counts. Episodes before
   that are not counted.
4. The reward of a transition is about the state it leads to.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt

from element_rl.replay.ring import Episode, Transitions
from element_rl.rewards.interface import RewardSpec
from element_rl.rewards.scaling import Moments, empty_moments, with_values
from element_rl.rewards.settings import check_settings
from element_rl.rewards.visit_cells import Cells, cells_of, random_cells, signs_of


@dataclass(frozen=True)
class PseudoCountsConfig:
    """The paper's parameters; see the head of the file for those that had to be chosen."""

    hash: Literal["cells", "simhash"] = "cells"  # cells of equal size, or signs of projections
    projections: int = 4  # K: cells of vectors with more entries are of as many projections
    cell_width: float = 0.5  # w, in standard deviations; not used by simhash
    # transitions whose moments whiten all that come; no more than a tenth of the run
    calibration_steps: int = 1_000
    num_tables: int = 4  # M
    table_size: int = 262_144  # S, slots of a table
    reward_scale: float = 1.0  # c

    def __post_init__(self) -> None:
        positive = ("projections", "cell_width", "calibration_steps", "num_tables", "table_size")
        check_settings(self, (*positive, "reward_scale"))


class PseudoCountsState(NamedTuple):
    """What the reward of one agent knows."""

    cells: Cells  # directions and offsets of the hash; never change
    multipliers: UInt[Array, "M K"]  # of the hash into each table; never change
    counts: Int[Array, "M S"]
    observations: Moments  # of the first next observations, [O]
    calibration: Float[Array, ""]  # how many of them are needed
    load: Float[Array, ""]  # share of the slots in use, of the fullest table


@dataclass(frozen=True)
class PseudoCountsReward:
    """One over the root of the visits over training, for one agent; populations `vmap` it."""

    name: ClassVar[str] = "pseudo-counts"
    config: PseudoCountsConfig = field(default_factory=PseudoCountsConfig)

    @property
    def metric_names(self) -> tuple[str, ...]:
        return ("pseudo_counts_load",)

    def note_shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {}

    def init(self, key: PRNGKeyArray, spec: RewardSpec) -> PseudoCountsState:
        config = self.config
        cells_key, table_key = jax.random.split(key)
        needed = min(config.calibration_steps, max(spec.total_steps // 10, 1))
        always = config.hash == "simhash"  # K bits of vectors of any width
        cells = random_cells(cells_key, spec.observation_dim, config.projections, always)
        shape = (config.num_tables, cells.offsets.shape[0])
        return PseudoCountsState(
            cells=cells,
            multipliers=jax.random.bits(table_key, shape, jnp.uint32),
            counts=jnp.zeros((config.num_tables, config.table_size), jnp.int32),
            observations=empty_moments((spec.observation_dim,)),
            calibration=jnp.asarray(float(needed)),
            load=jnp.zeros(()),
        )

    def observe(
        self, state: PseudoCountsState, episode: Episode
    ) -> tuple[PseudoCountsState, dict[str, Array]]:
        """The episode enters the whitening while that is not complete; once it is, its states are
        counted."""
        needed = state.calibration
        extended = with_values(state.observations, episode.next_observation, episode.mask)
        complete = state.observations.number >= needed
        seen = jax.tree.map(
            lambda old, new: jnp.where(complete, old, new), state.observations, extended
        )
        state = state._replace(observations=Moments(*seen))
        visited = jnp.concatenate([episode.observation[:1], episode.next_observation])  # s_0 … s_T
        present = jnp.concatenate([episode.mask[:1], episode.mask]) & (seen.number >= needed)
        counts = with_visits(state.counts, self.slots(state, visited), present)
        load = jnp.max(jnp.mean(counts > 0, axis=1))
        return state._replace(counts=counts, load=load), {}

    def update(
        self, state: PseudoCountsState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[PseudoCountsState, dict[str, Array]]:
        """Nothing is learnt from batches: all is counted when episodes end."""
        del batch, key
        return state, {"pseudo_counts_load": state.load}

    def reward(self, state: PseudoCountsState, batch: Transitions) -> Float[Array, " B"]:
        visits = visits_of(state.counts, self.slots(state, batch.next_observation))
        return self.config.reward_scale * jax.lax.rsqrt(jnp.maximum(visits, 1.0))

    def reward_terms(
        self, state: PseudoCountsState, batch: Transitions
    ) -> dict[str, Float[Array, " B"]]:
        return {"reward_lifelong": self.reward(state, batch)}

    def slots(
        self, state: PseudoCountsState, observation: Float[Array, "B O"]
    ) -> Int[Array, "B M"]:
        """The slot of each observation in each table."""
        config = self.config
        if config.hash == "simhash":
            codes = signs_of(state.cells, observation, state.observations)
        else:
            codes = cells_of(state.cells, observation, state.observations, config.cell_width)
        return table_slots(codes, state.multipliers, config.table_size)


def table_slots(
    codes: Int[Array, "B K"], multipliers: UInt[Array, "M K"], table_size: int
) -> Int[Array, "B M"]:
    """A slot of every table for each code: a random linear form modulo 2³², whose bits are mixed
    (as in MurmurHash3), modulo the size of a table."""
    words = codes.astype(jnp.uint32)[:, None, :] * multipliers[None]
    mixed = jnp.sum(words, axis=-1, dtype=jnp.uint32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        mixed = (mixed ^ (mixed >> shift)) * jnp.uint32(factor)
    mixed = mixed ^ (mixed >> 16)
    return (mixed % jnp.uint32(table_size)).astype(jnp.int32)


def with_visits(
    counts: Int[Array, "M S"], slots: Int[Array, "N M"], present: Bool[Array, " N"]
) -> Int[Array, "M S"]:
    """The tables with one visit more for every row that is there."""
    table = jnp.arange(counts.shape[0])[None, :]
    return counts.at[table, slots].add(present.astype(jnp.int32)[:, None])


def visits_of(counts: Int[Array, "M S"], slots: Int[Array, "B M"]) -> Float[Array, " B"]:
    """n: the least of the counts of each row."""
    table = jnp.arange(counts.shape[0])[None, :]
    return jnp.min(counts[table, slots], axis=1).astype(jnp.float32)
