"""Which agent learns in an environment, and which one it can be."""

from typing import Literal

from element_rl.agents.making import CHOOSING
from element_rl.envs.spec import EnvSpec

AgentName = Literal["sac", "td3", "dqn", "ppo", "a3c"]
ON_POLICY = ("ppo", "a3c")  # `element explore` hands these over to `element on-policy`


def chosen_agent(asked: AgentName | None, spec: EnvSpec) -> AgentName:
    """The agent that was asked for, or the usual one: SAC for coordinates of a Box, DQN for a
    choice; a ValueError where it cannot take such actions."""
    if asked is None:
        return "dqn" if spec.chooses else "sac"
    if asked in ON_POLICY:
        raise ValueError(
            f"--agent {asked} learns on policy, from no replay: use `element on-policy {spec.name} "
            f"--agent {asked}`."
        )
    if (asked in CHOOSING) == spec.chooses:
        return asked
    if spec.chooses:
        raise ValueError(
            f"--agent {asked} gives numbers within bounds, and {spec.name} takes one of "
            f"{spec.actions} choices: take --agent dqn, ppo or a3c, or leave it out."
        )
    numbers = f"{spec.action_dim} number{'s' if spec.action_dim > 1 else ''}"
    raise ValueError(
        f"--agent {asked} chooses among a few actions, and {spec.name} takes {numbers} within "
        "bounds: take --agent sac, td3 or ppo, or leave it out."
    )


def refuse_worlds(physics: str, spec: EnvSpec) -> None:
    """A ValueError for choices in worlds on the device."""
    if spec.chooses:
        raise ValueError(
            f"--physics {physics} steps environments that take numbers within bounds, and "
            f"{spec.name} takes one of {spec.actions} choices: leave it out."
        )
