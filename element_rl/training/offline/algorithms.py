"""Algorithms that learn from datasets, by name. A new one is a file of `element_rl.agents` with
`agent`, a field of `OfflineConfig` for its settings, and a line here."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

from element_rl.agents import behaviour_cloning, cql, discrete_cloning, discrete_cql, iql, td3_bc
from element_rl.agents.contract import Agent

AlgorithmName = Literal["cql", "td3-bc", "iql", "bc"]


class Form(NamedTuple):
    """An algorithm for one kind of actions."""

    settings: str  # the field of OfflineConfig
    agent: Callable[..., Agent]  # of its settings, the shape of observations, actions


class Algorithm(NamedTuple):
    """What a name stands for."""

    title: str  # as help has it
    vectors: Form  # where actions are vectors
    choices: Form | None = None  # where they are choices


ALGORITHMS: dict[AlgorithmName, Algorithm] = {
    "cql": Algorithm(
        "conservative Q-learning",
        Form("cql", cql.agent),
        Form("discrete_cql", discrete_cql.agent),
    ),
    "td3-bc": Algorithm("TD3 with behaviour cloning", Form("td3_bc", td3_bc.agent)),
    "iql": Algorithm("implicit Q-learning", Form("iql", iql.agent)),
    "bc": Algorithm(
        "behaviour cloning",
        Form("bc", behaviour_cloning.agent),
        Form("bc", discrete_cloning.agent),
    ),
}
NAMES: tuple[AlgorithmName, ...] = get_args(AlgorithmName)


def algorithms_help() -> str:
    """What the option --algorithm says."""
    named = [f"{ALGORITHMS[name].title} ({name})" for name in NAMES]
    chosen = [name for name in NAMES if ALGORITHMS[name].choices]
    return (
        f"How to learn: {', '.join(named[:-1])} or {named[-1]}. Where actions are choices: "
        f"{' or '.join(chosen)}, in their discrete forms."
    )


def form_of(name: AlgorithmName, discrete: bool) -> Form:
    """The algorithm for actions of this kind, refused where it has none."""
    algorithm = ALGORITHMS[name]
    if not discrete:
        return algorithm.vectors
    if algorithm.choices is None:
        others = " or ".join(other for other in NAMES if ALGORITHMS[other].choices)
        raise ValueError(
            f"--algorithm {name} learns actions that are vectors, and those of the datasets are "
            f"choices: take {others}."
        )
    return algorithm.choices


def settings_of(config: Any, discrete: bool) -> Any:
    """The settings of what learns with `config`, an OfflineConfig."""
    return getattr(config, form_of(config.algorithm, discrete).settings)
