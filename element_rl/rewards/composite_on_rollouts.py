"""Sums and products of rewards on rollouts: r = Σ_i w_i P_i / σ_i, as `composite` has it.

Each reward is a `Bonus` of its own (`on_rollouts`), with the form that it has on rollouts. σ_i is
the deviation of P_i over the last hundred rollouts or so, the one that is judged included: else the
first rollout would be paid in the units of every reward. There is no `whole_scale`: on-policy runs
have `--scale-reward`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from element_rl.rewards.composite import (
    column_names,
    column_of,
    deviation_column,
    keys_of_each,
    products_of,
    term_columns,
    the_parts,
    weighted_sum,
    which_scaled,
)
from element_rl.rewards.composite_capabilities import with_capabilities
from element_rl.rewards.expression import Expression
from element_rl.rewards.on_rollouts import Bonus, EpisodeSoFar, Part, Values
from element_rl.rewards.recent_scale import RecentScale, deviation, followed

RATE = 1e-2  # of the moments, per rollout


class CompositeBonusState(NamedTuple):
    """What the rewards of one agent know, and the recent moments of the terms."""

    members: tuple[Any, ...]  # of each reward
    scales: tuple[RecentScale | tuple[()], ...]  # of each term; () of those that are not scaled


class Judged(NamedTuple):
    """What a rollout is worth."""

    terms: list[Float[np.ndarray, " T"]]  # each over its deviation, before its weight
    scales: tuple[RecentScale | tuple[()], ...]  # the moments that have seen it
    parts: dict[str, Float[np.ndarray, " T"]]  # of the one reward that has two


class CompositeBonus:
    """The `Bonus` of one agent or of several: each has its own state, and none is shared."""

    def __init__(
        self, expression: Expression, members: Sequence[Bonus], scaled: tuple[bool, ...]
    ) -> None:
        self.expression, self.members, self.scaled = expression, tuple(members), scaled
        self.name = expression.text
        self._columns = column_names(self)
        own = [name for names in self._columns for name in names.values()]
        self.metric_names: tuple[str, ...] = (*own, *term_columns(expression, scaled))
        self._latest: tuple[CompositeBonusState, Sequence[Part], Judged] | None = None

    def init(self, key: PRNGKeyArray) -> CompositeBonusState:
        keys = keys_of_each(key, len(self.members))
        states = (member.init(each) for member, each in zip(self.members, keys, strict=True))
        scales = tuple(_unseen() if scaled else () for scaled in self.scaled)
        return CompositeBonusState(tuple(states), scales)

    def rewards(self, state: CompositeBonusState, parts: Sequence[Part]) -> Values:
        judged = self._judge(state, parts)
        named = zip(self.expression.products, judged.terms, strict=True)
        terms = {column_of(product.label): term for product, term in named} | judged.parts
        return np.asarray(weighted_sum(self.expression, judged.terms), np.float32), terms

    def learn(
        self, state: CompositeBonusState, parts: Sequence[Part], key: PRNGKeyArray
    ) -> tuple[CompositeBonusState, dict[str, float]]:
        """Every reward learns; the deviations follow what the rollout was worth before that."""
        scales = self._judge(state, parts).scales
        states: list[Any] = []
        metrics: dict[str, float] = {}
        for index, each in enumerate(keys_of_each(key, len(self.members))):
            known, learned = self.members[index].learn(state.members[index], parts, each)
            states.append(known)
            metrics |= self._named(index, learned)
        for product, scale in zip(self.expression.products, scales, strict=True):
            if isinstance(scale, RecentScale):
                metrics[deviation_column(product.label)] = float(deviation(scale))
        return CompositeBonusState(tuple(states), scales), metrics

    def observe(
        self, state: CompositeBonusState, episode: EpisodeSoFar, step: int
    ) -> tuple[CompositeBonusState, dict[str, float]]:
        states: list[Any] = []
        metrics: dict[str, float] = {}
        for index, member in enumerate(self.members):
            known, observed = member.observe(state.members[index], episode, step)
            states.append(known)
            metrics |= self._named(index, observed)
        return state._replace(members=tuple(states)), metrics

    def _judge(self, state: CompositeBonusState, parts: Sequence[Part]) -> Judged:
        """Once for a rollout, though both its rewards and what is learned ask."""
        latest = self._latest
        if latest is not None and latest[0] is state and _same(latest[1], parts):
            return latest[2]
        answers = [
            member.rewards(known, parts)
            for member, known in zip(self.members, state.members, strict=True)
        ]
        products = products_of(self.expression, [values for values, _ in answers])
        scales = tuple(
            _seen(scale, product) if isinstance(scale, RecentScale) else ()
            for scale, product in zip(state.scales, products, strict=True)
        )
        terms = [
            np.asarray(product / np.float32(deviation(scale)), np.float32)
            if isinstance(scale, RecentScale)
            else product
            for scale, product in zip(scales, products, strict=True)
        ]
        judged = Judged(terms, scales, the_parts([parts for _, parts in answers]))
        self._latest = (state, list(parts), judged)
        return judged

    def _named(self, index: int, metrics: dict[str, float]) -> dict[str, float]:
        return {self._columns[index][name]: value for name, value in metrics.items()}


def composite_bonus(
    expression: Expression, members: Sequence[Bonus], scaled: Sequence[bool | None]
) -> Bonus:
    """The sum of these rewards, which can do what they can. `scaled`: of each product, None as
    usual."""
    divided = which_scaled(expression, members, scaled)
    made: Bonus = with_capabilities(CompositeBonus, members)(expression, members, divided)
    return made


def _unseen() -> RecentScale:
    nothing: Any = np.zeros((), np.float32)
    return RecentScale(nothing, nothing, nothing)


def _seen(scale: RecentScale, values: Float[np.ndarray, " T"]) -> RecentScale:
    mean, square = np.mean(values), np.mean(np.square(values))
    moments = followed(scale, mean, square, RATE)
    return RecentScale(*(np.asarray(each, np.float32) for each in moments))  # type: ignore[arg-type]


def _same(some: Sequence[Part], others: Sequence[Part]) -> bool:
    return len(some) == len(others) and all(
        one.episode is other.episode and one.new == other.new
        for one, other in zip(some, others, strict=True)
    )
