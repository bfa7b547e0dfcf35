"""Worlds whose agents are told a random vector z beside what they observe: `envs.latents` on the
device.

z is drawn with a key of its own, made of the world's at its reset, so that the world does what it
does without it.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from element_rl.envs.latents import STREAM, LatentSettings
from element_rl.envs.spec import EnvSpec
from element_rl.worlds.contract import Outcome, Seen, Worlds


class Told(NamedTuple):
    """Worlds, and what their agents are told."""

    worlds: Any
    key: Key[Array, " L"]
    latent: Float[Array, "L Z"]
    steps: Int[Array, " L"]  # of the episode


@dataclass(frozen=True)
class LatentWorlds:
    """Worlds with z in the last columns of their observations."""

    spec: EnvSpec  # of what is seen, z included
    worlds: Worlds
    settings: LatentSettings

    def reset(self, keys: Key[Array, " L"]) -> tuple[Told, Seen]:
        state, seen = self.worlds.reset(keys)
        own = jax.vmap(lambda key: jax.random.fold_in(key, STREAM))(keys)
        steps = jnp.zeros(keys.shape[0], jnp.int32)
        told = Told(state, own, self._drawn(own, steps), steps)
        return told, _with_latent(seen, told.latent)

    def step(self, state: Told, action: Float[Array, "L A"]) -> tuple[Told, Outcome]:
        worlds, outcome = self.worlds.step(state.worlds, action)
        steps, latent = state.steps + 1, state.latent
        if self.settings.every is not None:
            anew = steps % self.settings.every == 0
            latent = jnp.where(anew[:, None], self._drawn(state.key, steps), latent)
        told = Told(worlds, state.key, latent, steps)
        return told, outcome._replace(seen=_with_latent(outcome.seen, latent))

    def _drawn(self, keys: Key[Array, " L"], steps: Int[Array, " L"]) -> Float[Array, "L Z"]:
        return jax.vmap(
            lambda key, step: drawn_latent(jax.random.fold_in(key, step), self.settings)
        )(keys, steps)


def drawn_latent(key: PRNGKeyArray, latent: LatentSettings) -> Float[Array, " Z"]:
    """One z, of the kinds that `envs.latents` has."""
    if latent.kind == "choice":
        chosen = jnp.arange(latent.dim) == jax.random.randint(key, (), 0, latent.dim)
        return jnp.where(chosen, 1.0, -1.0 / (latent.dim - 1))
    normal = jax.random.normal(key, (latent.dim,))
    return normal / jnp.linalg.norm(normal)


def _with_latent(seen: Seen, latent: Float[Array, "L Z"]) -> Seen:
    return seen._replace(observation=jnp.concatenate([seen.observation, latent], axis=-1))
