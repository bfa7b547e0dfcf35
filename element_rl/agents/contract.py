"""What an agent that learns from batches of transitions offers, whatever it is inside.

    agent = sac.agent(SACConfig(), observation_dim, action_dim)
    state = agent.create(key)
    state, metrics = agent.update(state, batch, key)
    parameters = agent.policy(state)              flat arrays: what acts on the host and is stored
    state = agent.with_policy(state, parameters)  another policy in the same agent

Functions are for one agent; `jax.vmap` makes populations. A state is a pytree of arrays. The loops
know nothing else of an agent: `element explore`, `finetune` and `offline` train whatever is here.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from jaxtyping import Array, Bool, Float, PRNGKeyArray

# which networks have layer normalisation
LayerNorm = Literal["none", "critics", "both"]


class Batch(NamedTuple):
    """Transitions to learn from; `terminated` where the task ended, not where time ran out."""

    observation: Float[Array, "B O"]
    action: Float[Array, "B A"]  # in [-1, 1]
    reward: Float[Array, " B"]
    next_observation: Float[Array, "B O"]
    terminated: Float[Array, " B"] | Bool[Array, " B"]


class Anchor(NamedTuple):
    """A policy that the actor is not to leave at once; leaving costs `weight` mean |Q| per nat."""

    actor: Any  # as in the agent's state
    weight: Float[Array, ""]


class Agent(NamedTuple):
    """An agent's functions with its settings filled in.

    `update` of an agent that acts also takes `actor_learns` (false: only the critics learn) and
    `anchor`. `parts` names fields of its state that fine-tuning may keep, by the word its command
    has for them.
    """

    create: Callable[[PRNGKeyArray], Any]
    update: Callable[..., tuple[Any, dict[str, Array]]]  # state, batch, key → state, metrics
    policy: Callable[[Any], dict[str, Array]]
    batch_size: int
    metric_names: tuple[str, ...]  # what `update` reports
    with_policy: Callable[[Any, Mapping[str, Any]], Any] | None = None
    parts: Mapping[str, tuple[str, ...]] = {}
    # Updates of the critics for each of the actor, where the loop counts them: it says with
    # `actor_learns` which updates are the actor's too. In others the actor's metrics are NaN.
    policy_delay: int = 1
    frame_stack: int = 1  # grey frames that an observation is made of, where it is one of frames


def check_settings(settings: Any, checks: Iterable[tuple[str, bool, str]]) -> None:
    """Refuses settings of an agent; a check is a field's name, whether it is valid, and what would
    be."""
    for name, valid, choice in checks:
        if not valid:
            given = f"{type(settings).__name__}.{name} is {getattr(settings, name)!r}"
            raise ValueError(f"{given}; choose {choice}.")
