"""Functional environments of JAX as worlds on the device.

An environment of Gymnasium that has an attribute `func_env`, Gymnasium's `FuncEnv`, says in pure
functions what it does: those of `gymnasium.envs.functional_jax_env.FunctionalJaxEnv` do, such as
`phys2d/Pendulum-v0`. Who has two functions instead wraps them:

    reset(key) -> (state, observation)
    step(state, action) -> (state, observation, reward, terminated)

    class Bounce(gymnasium.Env):
        func_env = TwoFunctions(reset, step)
        ...

The environment itself tells the spaces and the time limit, and it is what `element evaluate`,
`collect` and films act in. docs/worlds.md has a whole example.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PRNGKeyArray

from element_rl.envs.spec import EnvSpec
from element_rl.worlds.contract import Outcome, Seen


class Running(NamedTuple):
    """One world, and the key of all that will be random in its episode."""

    state: Any
    key: PRNGKeyArray


@dataclass(frozen=True)
class TwoFunctions:
    """A functional environment that draws nothing after its reset.

    `info(state)` names numbers, for `--position`, as the info of a reset and a step does.
    """

    reset: Callable[[PRNGKeyArray], tuple[Any, Array]]
    step: Callable[[Any, Array], tuple[Any, Array, Array, Array]]
    info: Callable[[Any], dict[str, Array]] = lambda state: {}


@dataclass(frozen=True)
class FunctionalWorlds:
    """L copies of a functional environment."""

    spec: EnvSpec
    env: Any  # `TwoFunctions`, or a `FuncEnv` of Gymnasium

    def reset(self, keys: Key[Array, " L"]) -> tuple[Running, Seen]:
        return jax.vmap(self._reset)(keys)

    def step(self, state: Running, action: Float[Array, "L A"]) -> tuple[Running, Outcome]:
        return jax.vmap(self._step)(state, action)

    def _reset(self, key: PRNGKeyArray) -> tuple[Running, Seen]:
        begin, running = jax.random.split(key)
        if isinstance(self.env, TwoFunctions):
            state, observation = self.env.reset(begin)
        else:
            state = self.env.initial(begin)
            observation = self.env.observation(state, begin)
        return Running(state, running), self._seen(state, observation)

    def _step(self, running: Running, action: Float[Array, " A"]) -> tuple[Running, Outcome]:
        draw, key = jax.random.split(running.key)
        if isinstance(self.env, TwoFunctions):
            state, observation, reward, terminated = self.env.step(running.state, action)
        else:
            state = self.env.transition(running.state, action, draw)
            observation = self.env.observation(state, draw)
            reward = self.env.reward(running.state, action, state, draw)
            terminated = self.env.terminal(state, draw)
        seen = self._seen(state, observation)
        finite = jnp.isfinite(seen.observation).all() & jnp.isfinite(seen.position).all()
        sound = finite & jnp.isfinite(jnp.asarray(reward, jnp.float32))
        outcome = Outcome(
            seen, jnp.asarray(reward, jnp.float32), jnp.asarray(terminated, bool), ~sound
        )
        return Running(state, key), outcome

    def _seen(self, state: Any, observation: Array) -> Seen:
        observation = jnp.asarray(observation, jnp.float32)
        return Seen(observation, self._position(state, observation))

    def _position(self, state: Any, observation: Float[Array, " O"]) -> Float[Array, " C"]:
        names = self.spec.position
        if not names:
            return jnp.zeros(0)
        if all(isinstance(name, int) for name in names):
            return observation[jnp.asarray(names)]
        info = (
            self.env.info(state)
            if isinstance(self.env, TwoFunctions)
            else self.env.state_info(state)
        )
        told = [observation[name] if isinstance(name, int) else info[name] for name in names]
        return jnp.concatenate([jnp.asarray(part, jnp.float32).reshape(-1) for part in told])
