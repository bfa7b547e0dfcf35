"""Agents that learn while they act, by name. A new one is a file with `agent` and a line here."""

from collections.abc import Callable
from typing import Any

from element_rl.agents import dqn, sac, td3
from element_rl.agents.contract import Agent

AGENTS: dict[str, Callable[[Any, int, int, int | None], Agent]] = {
    "sac": sac.agent,
    "td3": td3.agent,
    "dqn": dqn.agent,
}
CHOOSING = ("dqn",)  # those that choose among actions; all others give coordinates of a Box


def make_agent(
    name: str,
    settings: Any,
    observation_dim: int,
    action_dim: int,
    actor_dim: int | None = None,
) -> Agent:
    """The agent of a name with its settings, for vectors and actions of these widths; its actor
    sees the first `actor_dim` columns of an observation, or all."""
    return AGENTS[name](settings, observation_dim, action_dim, actor_dim)
