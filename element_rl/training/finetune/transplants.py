"""Agents that begin with the policies of a run's checkpoints.

The policy is transferred; what has learned the value of another reward is fresh unless it is kept.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import equinox as eqx
import numpy as np

from element_rl.agents.contract import Agent
from element_rl.runs.folder import RunFolder
from element_rl.storage.trees import arrays_to_tree

AGENTS = "learner/agents"  # where a checkpoint's resume arrays have them
Begins = Literal["fresh", "kept"]


def transplanted(
    agent: Agent,
    agents: Any,
    source: RunFolder,
    transfer: Mapping[str, Any],
    critics: Begins = "fresh",
    temperature: Begins = "fresh",
) -> Any:
    """Fresh agents [P, ...] with the policies of their checkpoints and, where kept, the critics and
    the temperature.

    The optimiser of the actor is always fresh: its moments are those of another objective.
    """
    assert agent.with_policy is not None  # every agent that explores has one
    agents = agent.with_policy(agents, chosen_policies(source, transfer))
    fields: list[str] = []
    for part, begins in (("critics", critics), ("temperature", temperature)):
        if begins == "kept" and part not in agent.parts:
            raise ValueError(
                f"--{part} kept means nothing here: the agent of {source.path} has no {part}."
            )
        fields += agent.parts[part] if begins == "kept" else ()
    if not fields:
        return agents
    arrays = source.load_resume()[0]
    number = len(transfer["transferred_step"])
    kept = []
    for field in fields:
        place = f"{AGENTS}/{field}"
        stored = {
            name: array[:number]
            for name, array in arrays.items()
            if name == place or name.startswith(f"{place}/")
        }
        kept.append(arrays_to_tree(getattr(agents, field), stored, place))
    # `dataclasses.replace` would take the population for one agent
    return eqx.tree_at(lambda tree: [getattr(tree, field) for field in fields], agents, kept)


def transplanted_policies(
    fresh: Mapping[str, np.ndarray],
    source: RunFolder,
    transfer: Mapping[str, Any],
    critics: Begins = "fresh",
) -> dict[str, np.ndarray]:
    """Parameters [P, ...] of A3C's chosen checkpoints, with the critic's heads of the fresh agents
    unless they are kept."""
    policies = chosen_policies(source, transfer)
    if critics == "kept":
        return policies
    heads = {name: policies[name].copy() for name in ("head_weight", "head_bias")}
    for name, head in heads.items():
        head[..., -1] = fresh[name][..., -1]  # the last output is the value
    return policies | heads


def chosen_policies(source: RunFolder, transfer: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Parameters [P, ...] of every agent, each of its own checkpoint."""
    steps = transfer["transferred_step"]
    distinct = sorted(set(steps))
    return gathered(
        [source.load_policy(step) for step in distinct], [distinct.index(step) for step in steps]
    )


def gathered(
    policies: Sequence[Mapping[str, np.ndarray]], which: Sequence[int] | np.ndarray
) -> dict[str, np.ndarray]:
    """One population of which agent p is that of policies[which[p]]."""
    return {
        name: np.stack([policies[index][name][agent] for agent, index in enumerate(which)])
        for name in policies[0]
    }
