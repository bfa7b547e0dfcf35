"""What an agent learns from, beside what its reward sees: where a return goes on after a fall, and
where the agent is.

A reward sees transitions as they were. Two settings change what the *agent* is given of them.

**`--falls reset`.** A fall resets the robot but does not end the return. With episodes one after
the other, the first observation of the next one ~ ρ, the distribution of resets, the discounted
return of the whole stream is

    Q(s, a) = E[r + γ V(s')]                         where the robot stands
    Q(s, a) = E[r] + γ E_{s_0 ~ ρ}[V(s_0)]           where it falls

so a transition that fell is bootstrapped from the first observation of the next episode, with
`terminated` 0. That is the non-episodic stream of RND (Burda et al., 2018, arXiv:1810.12894,
section 2.3). The next beginning is a draw of ρ that is independent of (s, a). The episode's own
beginning is not: where s tells how its episode began, it would teach E[V(s_0) | s] instead of
E[V(s_0)]. An episode that ran out of time is no fall: it is bootstrapped from its own last
observation, as always. The limit is ours, not the world's; agents do not see the clock, so a value
that jumped with it could not be learned.

**`--tell-position`.** The place on the coverage map, (position − centre) / half of the range, is
appended to the observation of the critics, or of critics and actor: −1 to 1 is the map, which is
made so that explorers stay on it. (The units of calibrated states are no scale for networks: random
actions set them, and explorers get much farther.) Rewards see what they see without it.
"""

from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from element_rl.agents.contract import Agent, Batch
from element_rl.agents.making import make_agent
from element_rl.envs.spec import EnvSpec, MapScale, map_scale
from element_rl.replay import ring
from element_rl.replay.ring import Drawn, Replay, Transitions

PLACE_DIM = 2  # columns that tell the place

Falls = Literal["end", "ignore", "reset"]
TellPosition = Literal["none", "critic", "both"]


class View(NamedTuple):
    """What the agents of a run learn from; hashable, so it can be static under jit."""

    resets: bool = False  # a fall does not end the return
    told: MapScale | None = None  # how critics are told where they are; None: not at all
    actor_told: bool = False  # whether actors are told too


PLAIN = View()


@runtime_checkable
class Settings(Protocol):
    """Those of a run that decide its view."""

    @property
    def falls(self) -> Falls | None: ...
    @property
    def tell_position(self) -> TellPosition: ...
    @property
    def agent(self) -> str | None: ...
    @property
    def learner(self) -> Any: ...


def view_of(settings: Settings, spec: EnvSpec) -> View:
    """The view of a run; a ValueError where the environment has no map to tell places of."""
    told = None if settings.tell_position == "none" else map_scale(spec)
    return View(settings.falls == "reset", told, settings.tell_position == "both")


def agent_of(settings: Settings, spec: EnvSpec) -> Agent:
    """The agent of a run, with networks as wide as what they see."""
    view = view_of(settings, spec)
    own, place = spec.observation_dim, 0 if view.told is None else PLACE_DIM
    actor_dim = own if place and not view.actor_told else None
    return make_agent(
        settings.agent or "sac", settings.learner, own + place, spec.action_dim, actor_dim
    )


def telling(agent: Agent, view: View) -> Agent:
    """The agent, whose stored policies say how they are told where they are, if they are
    (`acting.host_policy`)."""
    if view.told is None or not view.actor_told:
        return agent
    scale = view.told

    def policy(state: Any) -> dict[str, Array]:
        parameters = agent.policy(state)
        population = parameters["weight_0"].shape[:-2]
        centre, unit = (
            jnp.broadcast_to(jnp.asarray(part), (*population, PLACE_DIM)) for part in scale
        )
        return {**parameters, "place_centre": centre, "place_unit": unit}

    return agent._replace(policy=policy)


def placed(view: View, position: Float[Array, "*batch C"]) -> Float[Array, "*batch 2"] | None:
    """Where on the map positions are, as learners are told it; None where they are not."""
    if view.told is None:
        return None
    centre, unit = (jnp.asarray(part) for part in view.told)
    return jax.vmap(jax.vmap(lambda own: (own[:PLACE_DIM] - centre) / unit))(position)


def learned_from(
    view: View,
    replay: Replay,
    drawn: Drawn,
    batch: Transitions,
    rewards: Float[Array, " B"],
    beginnings: Int[Array, "S E"],
) -> Batch:
    """Transitions of one agent as it learns from them. `beginnings`: those of the ledger, where
    falls reset."""
    terminated, next_observation, next_slot = (
        batch.terminated,
        batch.next_observation,
        drawn.next_slot,
    )
    if view.resets:
        following = ring.next_beginning(replay, drawn, *beginnings)
        next_slot = jnp.where(batch.terminated, following, next_slot)
        next_observation = replay.observation[next_slot]
        terminated = jnp.zeros_like(batch.terminated)
    observation = batch.observation
    if replay.place is not None:
        observation, next_observation = (
            jnp.concatenate([seen, replay.place[slot]], axis=-1)
            for seen, slot in ((observation, drawn.slot), (next_observation, next_slot))
        )
    return Batch(observation, batch.action, rewards, next_observation, terminated)
