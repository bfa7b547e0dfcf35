"""Latents: a random vector z that the agent is told beside what it observes.

    env = LatentObservation(gymnasium.make("Ant-v5"), dim=2)    observes (o, z)

Rewards such as RLE and METRA pay a policy for going where z says, so policy, critics and reward
must all see z. It stands in the last columns of the observation: then whatever stores, replays or
sends observations has it, in any loop, and nothing else has to know of it.

    kind      z
    sphere    uniform on the unit sphere of `dim` dimensions
    choice    one of `dim` skills: 1 in its column and −1/(dim − 1) in the others, so that the mean
              over the skills is 0

z is drawn at every reset, and again after every `every` steps where that is given. It comes from a
generator of its own, which a seeded reset seeds: an episode is a function of its seed, and the
wrapped environment does exactly what it does without the wrapper.

To `make.make_env` the same is said by an option, `latent=sphere:2` or `latent=choice:16` or, with
`every`, `latent=sphere:8:500`.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from jaxtyping import Float

Kind = Literal["sphere", "choice"]
OPTION = "latent"  # of `make_env`
STREAM = 1_000_033  # tells the draws of z apart from the environment's own


class LatentSettings(NamedTuple):
    """What z is."""

    dim: int
    kind: Kind = "sphere"
    every: int | None = None  # steps; None: z stays for the whole episode


class LatentBox(gymnasium.spaces.Box):
    """Observations whose last columns are z: by this an integration knows that they are."""

    def __init__(self, space: gymnasium.spaces.Box, latent: LatentSettings) -> None:
        dtype = space.dtype if np.issubdtype(space.dtype, np.floating) else np.dtype(np.float32)
        side = np.ones(latent.dim)
        low, high = np.append(space.low, -side), np.append(space.high, side)
        super().__init__(low.astype(dtype), high.astype(dtype), dtype=dtype.type)
        self.latent = latent


class LatentObservation(gymnasium.Wrapper, RecordConstructorArgs):
    """An environment of flat vectors whose agent is told z, in the last `dim` columns."""

    def __init__(
        self, env: gymnasium.Env, dim: int = 2, kind: Kind = "sphere", every: int | None = None
    ) -> None:
        RecordConstructorArgs.__init__(self, dim=dim, kind=kind, every=every)
        super().__init__(env)
        self.settings = checked_latent(LatentSettings(dim, kind, every))
        seen = env.observation_space
        if latent_dim_of(seen):
            raise ValueError("The environment has latents already: wrap it once.")
        if not isinstance(seen, gymnasium.spaces.Box) or len(seen.shape) != 1:
            raise ValueError(
                f"Latents are appended to a flat Box, and the environment observes {seen}: wrap it "
                "with gymnasium.wrappers.FlattenObservation first."
            )
        self.observation_space: LatentBox = LatentBox(seen, self.settings)
        self.latent: Float[np.ndarray, " Z"] = np.zeros(dim)
        self._generator = np.random.default_rng()
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        if seed is not None:
            self._generator = np.random.default_rng([seed, STREAM])
        self.latent, self._steps = drawn_latent(self._generator, self.settings), 0
        return self._told(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        if self.settings.every is not None and self._steps % self.settings.every == 0:
            self.latent = drawn_latent(self._generator, self.settings)
        return self._told(observation), reward, terminated, truncated, info

    def _told(self, observation: Any) -> Float[np.ndarray, " O"]:
        return np.append(observation, self.latent).astype(self.observation_space.dtype)


def drawn_latent(generator: np.random.Generator, latent: LatentSettings) -> Float[np.ndarray, " Z"]:
    """One z."""
    if latent.kind == "choice":
        chosen = np.arange(latent.dim) == generator.integers(latent.dim)
        return np.where(chosen, 1.0, -1.0 / (latent.dim - 1))
    normal = generator.standard_normal(latent.dim)
    return np.asarray(normal / np.linalg.norm(normal))


def latent_dim_of(space: gymnasium.Space) -> int:
    """Columns of z in observations of this space; 0 where it does not say that it has any."""
    return space.latent.dim if isinstance(space, LatentBox) else 0


def parted_options(
    options: Mapping[str, Any],
) -> tuple[dict[str, Any], LatentSettings | None]:
    """Options of an environment without the one for latents, and what that says."""
    rest = dict(options)
    said = rest.pop(OPTION, None)
    return rest, None if said is None else parsed_latent(said)


def parsed_latent(text: Any) -> LatentSettings:
    """What `latent=…` says."""
    kind, *numbers = str(text).split(":")
    if not 1 <= len(numbers) <= 2 or not all(number.isdecimal() for number in numbers):
        raise ValueError(
            f"{OPTION} is {text!r}; say KIND:DIM or KIND:DIM:STEPS, such as sphere:2 or choice:16."
        )
    dim, *every = map(int, numbers)
    given: Any = kind  # checked here
    return checked_latent(LatentSettings(dim, given, every[0] if every else None))


def checked_latent(latent: LatentSettings) -> LatentSettings:
    """The settings, if they are possible."""
    if latent.kind not in get_args(Kind):
        raise ValueError(f"A latent is sphere or choice, not {latent.kind!r}.")
    least = 2 if latent.kind == "choice" else 1
    if latent.dim < least:
        raise ValueError(f"A latent of kind {latent.kind} has at least {least} columns.")
    if latent.every is not None and latent.every < 1:
        raise ValueError(f"A latent is drawn every 1 or more steps, not every {latent.every}.")
    return latent
