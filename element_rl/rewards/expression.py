"""Rewards on one line: sums of weighted products of rewards, such as `element + 0.5*rnd`.

    reward   = [sign] product { ("+" | "-") product }
    product  = factor { "*" factor }
    factor   = number | name | FILE.py:FUNCTION | quoted text

A product has at least one reward; its numbers are multiplied to its weight. There are no
parentheses: `0.3*element + 0.3*rnd` is what `0.3*(element + rnd)` would be. A hyphen before a
letter belongs to the name (`element-paper`), so a minus sign between rewards has spaces. A file
whose path has spaces or signs is quoted: `element + 'my rewards/a+b.py:make'`.

This file knows the grammar alone. Which names there are, `making` says.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

MOST_REWARDS = 8  # each is compiled, observes and learns: more are a mistake
LARGEST_WEIGHT = 1e30  # numbers are float32, and products must be finite too
LONGEST_LABEL = 40
SCALE = "recent_scale"  # an option of a product, or of all
# reward_… of these means something else in metrics.csv
TAKEN_LABELS = ("episodic", "lifelong", "learned", "mean", "deviation")
Products = list[tuple[float, tuple[str, ...]]]  # weights and names
_FILE = re.compile(r"[^\s+*()'\"]+\.py:\w+")
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_NUMBER = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.])")
_NAME = re.compile(r"[^\W\d]\w*(?:-[^\W\d]\w*)*")
_SPACE = re.compile(r"\s*")


@dataclass(frozen=True)
class Named:
    """A reward of an expression."""

    name: str  # of the registry, or FILE.py:FUNCTION
    label: str  # what options, columns and notes call it; no two have the same


@dataclass(frozen=True)
class Product:
    """A weight times rewards."""

    weight: float
    members: tuple[int, ...]  # which rewards of the expression
    label: str


@dataclass(frozen=True)
class Expression:
    """A sum of products."""

    products: tuple[Product, ...]
    rewards: tuple[Named, ...]

    @property
    def name(self) -> str | None:
        """The reward that this is, where it is one by its name alone; None for all others."""
        alone = len(self.rewards) == 1 and len(self.products) == 1
        return self.rewards[0].name if alone and self.products[0].weight == 1.0 else None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(reward.name for reward in self.rewards)

    @property
    def text(self) -> str:
        """The expression as it is written down: equal ones have equal texts."""
        names = [_quoted(reward.name) for reward in self.rewards]
        return self.name or self._written(names, "*", "*", " + ", " - ")

    @property
    def folder_label(self) -> str:
        """The expression as a part of a folder's name: element+0.5rnd, ngu_x_rnd."""
        labels = [reward.label for reward in self.rewards]
        return self._written(labels, "", "_x_", "+", "-")[:100]

    def _written(self, names: list[str], weighs: str, times: str, plus: str, minus: str) -> str:
        text = ""
        for product in self.products:
            sign = (minus if text else "-") if product.weight < 0 else (plus if text else "")
            size = abs(product.weight)
            weight = "" if size == 1.0 else f"{_number_text(size)}{weighs}"
            text += sign + weight + times.join(names[index] for index in product.members)
        return text


@lru_cache(maxsize=256)
def parsed(text: str) -> Expression:
    """The expression that a text is; a `ValueError` of one sentence where it is none."""
    alone: Products = [(1.0, (text,))]
    if is_file_function(text) and _is_file(text):
        return _labelled(alone)  # whatever its path looks like
    try:
        return _labelled(_Reader(text).products())
    except ValueError:
        if is_file_function(text) and not re.search(r"\*|\s[+-]\s", text):
            return _labelled(alone)  # its file is elsewhere, or gone
        raise


def is_file_function(name: str) -> bool:
    """Whether a name means a function in a file of the user's."""
    return name.rpartition(":")[0].endswith(".py")


def names_in(text: str) -> tuple[str, ...]:
    """The rewards of an expression, in order."""
    return parsed(text).names


class _Reader:
    """Reads a text from left to right."""

    def __init__(self, text: str) -> None:
        self.text, self.place = text, 0

    def products(self) -> Products:
        """Weight and names of each."""
        products: Products = []
        sign = self._sign(beginning=True)
        while True:
            weight, names = self._product()
            products.append((sign * weight, names))
            if self._at_end():
                break
            if self._next() not in "+-":
                self._expected("+, -, * or the end")
            sign = self._sign(beginning=False)
        number = sum(len(names) for _, names in products)
        if number > MOST_REWARDS:
            raise ValueError(
                f"The reward {_shortened(self.text)} has {number} rewards, and {MOST_REWARDS} are "
                "the most."
            )
        if not any(weight for weight, _ in products):
            raise ValueError(
                f"The reward {_shortened(self.text)} pays nothing: all its weights are 0, and one "
                "must not be."
            )
        return products

    def _product(self) -> tuple[float, tuple[str, ...]]:
        begin, weight, names = self.place, 1.0, []
        while True:
            factor = self._factor()
            if isinstance(factor, str):
                names.append(factor)
            else:
                weight *= factor
            if self._at_end() or self._next() != "*":
                break
            self.place += 1
        if not weight <= LARGEST_WEIGHT:
            self.place = begin
            self._expected("a finite weight")
        if not names:
            self._expected("* and a reward after a weight")
        return weight, tuple(names)

    def _factor(self) -> str | float:
        wanted = "a reward or a weight"
        if self._at_end():
            self._expected(wanted)
        if found := _QUOTED.match(self.text, self.place):
            name = found[1] or found[2] or ""
            if not is_file_function(name):
                self._expected("FILE.py:FUNCTION in quotation marks")
            self.place = found.end()
            return name
        if found := _FILE.match(self.text, self.place):
            self.place = found.end()
            return found[0]
        if found := _NUMBER.match(self.text, self.place):
            if not float(found[0]) <= LARGEST_WEIGHT:
                self._expected("a finite weight")
            self.place = found.end()
            return float(found[0])
        if found := _NAME.match(self.text, self.place):
            if found[0].lower() in ("nan", "inf", "infinity"):
                self._expected("a finite weight")
            self.place = found.end()
            return found[0]
        if self._next() == "(":
            wanted += " (parentheses are not read: write a*c + b*c for (a + b)*c)"
        self._expected(wanted)
        raise AssertionError

    def _sign(self, beginning: bool) -> float:
        """Of the product that follows: of its own, and that between it and the one before."""
        sign = 1.0
        for _ in range(1 if beginning else 2):
            if not self._at_end() and self._next() in "+-":
                sign *= -1.0 if self._next() == "-" else 1.0
                self.place += 1
        return sign

    def _at_end(self) -> bool:
        found = _SPACE.match(self.text, self.place)
        assert found is not None
        self.place = found.end()
        return self.place == len(self.text)

    def _next(self) -> str:
        return self.text[self.place]

    def _expected(self, wanted: str) -> None:
        rest = self.text[self.place :]
        found = "the end" if not rest.strip() else f"{_shortened(rest.split()[0])}"
        raise ValueError(
            f"The reward {_shortened(self.text)} cannot be read: at character {self.place + 1} "
            f"{wanted} was expected, got {found}."
        )


def options_of_each(
    expression: Expression, options: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], list[bool | None]]:
    """The options of each reward, and of each product whether it is divided by its recent
    deviation (None: as usual).

    Options name their reward, `{"rnd.learning_rate": 1e-3}` or `{"rnd": {"learning_rate": 1e-3}}`;
    where there is one reward only they need not.
    """
    labels = [reward.label for reward in expression.rewards]
    each: list[dict[str, Any]] = [{} for _ in labels]
    asked: list[bool | None] = [_switch(options[SCALE])] if SCALE in options else [None]
    scaled = asked * len(expression.products)
    for name, value in flat_options(expression, options).items():
        whose, _, option = name.rpartition(".")
        if name == SCALE:
            continue
        if whose not in labels:
            raise ValueError(_nobody_s(expression, name))
        index = labels.index(whose)
        if option != SCALE:
            each[index][option] = value
            continue
        for number, product in enumerate(expression.products):
            if index in product.members:
                scaled[number] = _switch(value)
    return each, scaled


def flat_options(expression: Expression, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with names such as `rnd.learning_rate`, however they were nested."""
    labels = [reward.label for reward in expression.rewards]
    flat: dict[str, Any] = {}
    for name, value in options.items():
        whose, dot, option = name.partition(".")
        whose = whose.replace("-", "_")
        if whose in labels and isinstance(value, Mapping) and not dot:
            flat |= {f"{whose}.{inner}": each for inner, each in value.items()}
        elif dot:
            flat[f"{whose}.{option}"] = value
        elif len(labels) == 1 and name != SCALE:
            flat[f"{labels[0]}.{name}"] = value
        else:
            flat[name] = value
    return flat


def _nobody_s(expression: Expression, option: str) -> str:
    labels = ", ".join(reward.label for reward in expression.rewards)
    if "." in option:
        return f"The option {option} is of no reward in {expression.text}, which has {labels}."
    example = f"{expression.rewards[0].label}.{option}"
    return (
        f"The option {option} does not say whose it is: name the reward, such as {example}; "
        f"{expression.text} has {labels}."
    )


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{SCALE} is true or false, got {value!r}.")
    return value


def _labelled(products: Products) -> Expression:
    rewards: list[Named] = []
    labelled = []
    for weight, names in products:
        first = len(rewards)
        for name in names:
            rewards.append(Named(name, _label(name, {reward.label for reward in rewards})))
        members = tuple(range(first, len(rewards)))
        label = "_times_".join(rewards[index].label for index in members)
        labelled.append(Product(weight, members, label))
    return Expression(tuple(labelled), tuple(rewards))


def _label(name: str, taken: set[str]) -> str:
    """The name, or the stem of the file, as an identifier; with a number where it is taken."""
    stem = Path(name.rpartition(":")[0]).stem if is_file_function(name) else name
    plain = re.sub(r"\W", "_", stem)[:LONGEST_LABEL]
    plain = plain if plain.isidentifier() else f"own_{plain}"
    label, number = plain, 1
    while label in taken or label in TAKEN_LABELS:
        number += 1
        label = f"{plain}_{number}"
    return label


def _quoted(name: str) -> str:
    if not is_file_function(name) or (_FILE.fullmatch(name) and name[0] != "-"):
        return name
    return f'"{name}"' if "'" in name else f"'{name}'"


def _is_file(text: str) -> bool:
    try:
        return Path(text.rpartition(":")[0]).is_file()
    except (OSError, ValueError):  # no path at all
        return False


def _number_text(number: float) -> str:
    return repr(number).removesuffix(".0")


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:40]}…{text[-15:]}")
