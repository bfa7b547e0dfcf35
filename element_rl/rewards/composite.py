"""Sums and products of rewards: r(s) = Σ_i w_i P_i(s) / σ_i.

    P_i = Π_j r_ij       the product of the rewards of a term; of most terms one reward
    w_i                  its weight, positive, negative or 0
    σ_i                  the recent standard deviation of P_i (`recent_scale`), or 1

Rewards come in units of their own: RND's error falls by orders of magnitude within a run, NGU's
bonus may be 1,000. Divided by their deviations, weights are ratios of signals, at any time of the
run. That is done where there are two or more rewards, and not with a term whose rewards all keep
their scale (`interface.KeepsScale`): ELEMENT's terms are within [0, 1], and the task's own reward
has a unit that means something, nor has a sparse one a deviation before it was first seen.
With `whole_scale` the sum is then divided by its own recent deviation, as any other reward.

σ belongs to a term and not to each reward of it: constants cancel in P_i / σ_i, so the scales of
the factors do not matter. The mean is not subtracted: a product of rewards that are 0 or more is 0
where one of them is.

Every reward has a state, notes and a learning step of its own, as if it were alone. A term of
weight 0 observes, learns and is logged, and pays nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from element_rl.replay.ring import Episode, Transitions
from element_rl.rewards.composite_capabilities import (
    TOLD_APART,
    under_prefix,
    with_capabilities,
)
from element_rl.rewards.expression import Expression
from element_rl.rewards.interface import (
    Compares,
    Remembers,
    Reward,
    RewardSpec,
    keeps_scale,
    remembering,
)
from element_rl.rewards.recent_scale import RecentScale, deviation, followed

RATE = 1e-3  # of the moments, per update: they remember about 1,000


class CompositeState(NamedTuple):
    """What the rewards of one agent know, and the recent moments of the terms."""

    members: tuple[Any, ...]  # of each reward
    scales: tuple[RecentScale | tuple[()], ...]  # of each term; () of those that are not scaled
    whole: RecentScale | tuple[()]  # of the sum


@dataclass(frozen=True)
class Composite:
    """A sum of weighted products of rewards, for one agent; populations `vmap` it."""

    expression: Expression
    members: tuple[Reward, ...]  # the rewards of the expression
    scaled: tuple[bool, ...]  # of each product, whether it is divided by its recent deviation
    whole_scale: bool = False  # whether the sum is
    rate: float = RATE

    @property
    def name(self) -> str:
        return self.expression.text

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(reward.label for reward in self.expression.rewards)

    @property
    def metric_names(self) -> tuple[str, ...]:
        own = [name for names in column_names(self) for name in names.values()]
        whole = ("reward_deviation",) if self.whole_scale else ()
        return (*own, *term_columns(self.expression, self.scaled), *whole)

    def note_shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {
            f"{label}.{name}": shape
            for label, member in zip(self.labels, self.members, strict=True)
            for name, shape in member.note_shapes().items()
        }

    def init(self, key: PRNGKeyArray, spec: RewardSpec) -> CompositeState:
        keys = keys_of_each(key, len(self.members))
        states = (member.init(each, spec) for member, each in zip(self.members, keys, strict=True))
        scales = tuple(unseen() if scaled else () for scaled in self.scaled)
        return CompositeState(tuple(states), scales, unseen() if self.whole_scale else ())

    def observe(
        self,
        state: CompositeState,
        episode: Episode,
        neighbour_distances: Float[Array, "T K"] | None = None,
        measured: Mapping[str, Any] | None = None,
    ) -> tuple[CompositeState, dict[str, Array]]:
        """Every reward observes the episode. Distances to a memory on the host are given to the
        one reward that has it there. `measured` is by label what rewards have measured of it."""
        states: list[Any] = []
        notes: dict[str, Array] = {}
        for label, member, known in zip(self.labels, self.members, state.members, strict=True):
            memory = remembering(member)
            own = {"measured": measured[label]} if measured and label in measured else {}
            if neighbour_distances is not None and memory is not None and memory.memory_on_host:
                known, noted = memory.observe(known, episode, neighbour_distances, **own)
            else:
                known, noted = member.observe(known, episode, **own)
            states.append(known)
            notes |= {f"{label}.{name}": note for name, note in noted.items()}
        return state._replace(members=tuple(states)), notes

    def update(
        self, state: CompositeState, batch: Transitions, key: PRNGKeyArray
    ) -> tuple[CompositeState, dict[str, Array]]:
        """Every reward learns from the batch; then the deviations follow what it is worth now."""
        states: list[Any] = []
        metrics: dict[str, Array] = {}
        keys, names = keys_of_each(key, len(self.members)), column_names(self)
        for index, member in enumerate(self.members):
            known, learned = member.update(
                state.members[index], self.seen_by(index, batch), keys[index]
            )
            states.append(known)
            metrics |= {names[index][name]: value for name, value in learned.items()}
        state = state._replace(members=tuple(states))
        products = self.products(state, batch)
        scales = tuple(
            _seen(scale, product, self.rate) if isinstance(scale, RecentScale) else ()
            for scale, product in zip(state.scales, products, strict=True)
        )
        state = state._replace(scales=scales)
        for product, scale in zip(self.expression.products, scales, strict=True):
            if isinstance(scale, RecentScale):
                metrics[deviation_column(product.label)] = deviation(scale)
        if isinstance(state.whole, RecentScale):
            whole = _seen(state.whole, self._sum(state, products), self.rate)
            state, metrics["reward_deviation"] = state._replace(whole=whole), deviation(whole)
        return state, metrics

    def reward(self, state: CompositeState, batch: Transitions) -> Float[Array, " B"]:
        total = self._sum(state, self.products(state, batch))
        return total / deviation(state.whole) if isinstance(state.whole, RecentScale) else total

    def reward_terms(
        self, state: CompositeState, batch: Transitions
    ) -> dict[str, Float[Array, " B"]]:
        """Each term before its weight; and both parts of the reward that has two, if there is one
        such (`the_parts`)."""
        terms = zip(
            self.expression.products, self._scaled(state, self.products(state, batch)), strict=True
        )
        parts = [
            member.reward_terms(state.members[index], self.seen_by(index, batch))
            for index, member in enumerate(self.members)
        ]
        return {column_of(product.label): term for product, term in terms} | the_parts(parts)

    def products(self, state: CompositeState, batch: Transitions) -> list[Float[Array, " B"]]:
        """P of each term, neither weighted nor scaled."""
        values = [
            member.reward(state.members[index], self.seen_by(index, batch))
            for index, member in enumerate(self.members)
        ]
        return products_of(self.expression, values)

    def seen_by(self, index: int, batch: Transitions) -> Transitions:
        """The batch as a reward would see it alone: with its own notes, under its own names."""
        member = self.members[index]
        own = batch._replace(notes=under_prefix(batch.notes, f"{self.labels[index]}."))
        if TOLD_APART in batch.notes and isinstance(member, Compares):
            return member.told_apart(own, batch.notes[TOLD_APART])
        return own

    def _scaled(
        self, state: CompositeState, products: Sequence[Float[Array, " B"]]
    ) -> list[Float[Array, " B"]]:
        return [
            product / deviation(scale) if isinstance(scale, RecentScale) else product
            for product, scale in zip(products, state.scales, strict=True)
        ]

    def _sum(
        self, state: CompositeState, products: Sequence[Float[Array, " B"]]
    ) -> Float[Array, " B"]:
        return weighted_sum(self.expression, self._scaled(state, products))


def composite(
    expression: Expression,
    members: Sequence[Reward],
    scaled: Sequence[bool | None],
    whole_scale: bool = False,
) -> Reward:
    """The sum of these rewards, which can do what they can. `scaled`: of each product, None as
    usual."""
    on_host = [
        named.label
        for named, member in zip(expression.rewards, members, strict=True)
        if isinstance(member, Remembers) and member.memory_on_host
    ]
    if len(on_host) > 1:
        raise ValueError(
            f"{' and '.join(on_host)} both keep their memory on the host (hnsw), and one reward of "
            f"a sum may: choose another for the others, such as {on_host[1]}.memory=exact."
        )
    made: Reward = with_capabilities(Composite, members)(
        expression, tuple(members), which_scaled(expression, members, scaled), whole_scale
    )
    return made


def which_scaled(
    expression: Expression, members: Sequence[Any], asked: Sequence[bool | None]
) -> tuple[bool, ...]:
    """Which products are divided by their recent deviation: as asked; else, where there are two or
    more rewards, those with a reward that does not keep its scale."""
    several = len(members) > 1
    return tuple(
        several and not all(keeps_scale(members[index]) for index in product.members)
        if wanted is None
        else wanted
        for product, wanted in zip(expression.products, asked, strict=True)
    )


def keys_of_each(key: PRNGKeyArray, number: int) -> Sequence[PRNGKeyArray]:
    """A key for each reward; one alone has the key that it would have without a weight."""
    return [key] if number == 1 else list(jax.random.split(key, number))


def products_of(expression: Expression, values: Sequence[Any]) -> list[Any]:
    """The products of the rewards' values."""
    products = []
    for product in expression.products:
        first, *others = (values[index] for index in product.members)
        for other in others:
            first = first * other
        products.append(first)
    return products


def weighted_sum(expression: Expression, terms: Sequence[Any]) -> Any:
    """Σ w P. What weighs nothing is left out: 0 times what is not finite is not 0."""
    weighed = [
        product.weight * term
        for product, term in zip(expression.products, terms, strict=True)
        if product.weight
    ]
    total = weighed[0]
    for term in weighed[1:]:
        total = total + term
    return total


def column_names(composed: Any) -> list[dict[str, str]]:
    """Of each reward, what its metrics are called in metrics.csv: as they are, or after its label
    where an earlier one has the same (`rnd_loss` of a second RND is `rnd_2_loss`)."""
    taken = {*term_columns(composed.expression, composed.scaled), "reward_deviation"}
    each = []
    for named, member in zip(composed.expression.rewards, composed.members, strict=True):
        names = {}
        for name in member.metric_names:
            rest = name.removeprefix(f"{member.name}_")
            names[name] = f"{named.label}_{rest}" if name in taken else name
        taken |= set(names.values())
        each.append(names)
    return each


def term_columns(expression: Expression, scaled: Sequence[bool]) -> tuple[str, ...]:
    """What metrics.csv has of the terms: each before its weight, and what it was divided by."""
    columns = [column_of(product.label) for product in expression.products]
    deviations = [
        deviation_column(product.label)
        for product, divided in zip(expression.products, scaled, strict=True)
        if divided
    ]
    return (*columns, *deviations)


def column_of(label: str) -> str:
    return f"reward_{label}"


def deviation_column(label: str) -> str:
    return f"reward_{label}_deviation"


def the_parts(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """`reward_episodic` and `reward_lifelong` of the one reward that has both, as ELEMENT and NGU
    do; nothing where none has, or several have."""
    split = [part for part in parts if len(part) > 1]
    return dict(split[0]) if len(split) == 1 else {}


def unseen() -> RecentScale:
    """Nothing seen yet."""
    return RecentScale(jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))


def _seen(scale: RecentScale, values: Float[Array, " B"], rate: float) -> RecentScale:
    return followed(scale, jnp.mean(values), jnp.mean(values**2), rate)
