"""What rewards see of somebody's environment: vectors and states, made of observations and infos.

    source = StateSource(env.observation_space, position=("x_position", "y_position"), seed=0)
    raw, beside = source.read(observations, infos)   on the host: flat float32 vectors, or frames
    vectors = source.encoding.vectors(raw)           [B, O]: what rewards call observations
    states = source.encoding.states(raw, beside)     [B, D]: what entropy and novelty are of

    observation       vectors                          states
    numbers           as they are, flat                random embedding (5-D) ⊕ position ⊕
                                                       orientation, as in the paper
    images            a frozen random encoder, 32-D    the same ⊕ position
    own function      as above                         what it returns

Observations must be those of the environment, not ones that a running mean has normalised: stored
states would drift.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Float, UInt8

from element_rl.encoders.frozen import FrozenEncoder, freeze, random_encoder
from element_rl.encoders.state import StateEncoder, make_state_encoder
from element_rl.envs.latents import latent_dim_of
from element_rl.envs.make import describe
from element_rl.envs.names import registered_name
from element_rl.envs.positions import NONE
from element_rl.envs.robots import robot_of
from element_rl.envs.spec import EnvSpec, position_of

Infos = Sequence[Mapping[str, Any]] | None
# observations [B, ...] and infos to states [B, D]
StateFunction = Callable[[Any, Infos], np.ndarray]

EMBEDDING_DIM = 5  # of vectors: the paper's
IMAGE_DIM = 32  # of images: the paper's
SMALLEST_IMAGE = 36  # pixels; what is smaller is taken for numbers, as MiniGrid's views are


class Encoding(eqx.Module):
    """From what was read to what rewards take; under `jit` or not."""

    network: StateEncoder | FrozenEncoder | None
    own_states: bool = eqx.field(static=True)  # an own function made them, and they stand beside

    def vectors(self, raw: Array) -> Float[Array, "B O"]:
        """What rewards call observations."""
        return self.network(raw) if isinstance(self.network, FrozenEncoder) else raw

    def states(self, raw: Array, beside: Float[Array, "B C"]) -> Float[Array, "B D"]:
        """What entropy and novelty are measured on."""
        if self.own_states or self.network is None:
            return beside
        if isinstance(self.network, StateEncoder):
            return jax.vmap(self.network)(raw, beside)
        return jnp.concatenate([self.network(raw), beside], axis=1)


class StateSource:
    """What makes states, for one kind of environment and a whole run."""

    def __init__(
        self,
        observation_space: spaces.Space,
        *,
        env_id: str | None = None,
        position: Sequence[str] | Sequence[int] | None = None,
        states: StateFunction | None = None,
        seed: int = 0,
    ) -> None:
        if states is not None and position is not None:
            raise ValueError("A function for the states says all of them: leave out position.")
        # A single name may stand without brackets; its letters are no names.
        names = (position,) if isinstance(position, str) else tuple(position or ())
        self.space, self.own, self.position = observation_space, states, names
        _check_columns(self.position, observation_space)
        self.frame_shape = _frame_shape(observation_space)
        own_position = states is not None or bool(self.position)
        self.robot = (
            None if env_id is None or own_position else _described(env_id, observation_space)
        )
        self.encoding = Encoding(self._network(seed), own_states=states is not None)
        self.fitted = self.frame_shape is None

    @property
    def observation_dim(self) -> int:
        """Columns of the vectors."""
        return IMAGE_DIM if self.frame_shape is not None else flat_width(self.space)

    @property
    def state_dim(self) -> int | None:
        """Columns of the states; None where only an own function knows."""
        if self.own is not None:
            return None
        if self.frame_shape is not None:
            return IMAGE_DIM + len(self.position)
        known = (
            self.robot.position_dim + self.robot.orientation_dim if self.robot is not None else 0
        )
        return EMBEDDING_DIM + known + len(self.position)

    def read(
        self, observations: Any, infos: Infos = None
    ) -> tuple[np.ndarray, Float[np.ndarray, "B C"]]:
        """Observations as they are kept, and what of the state is not in them."""
        return self.raw(observations), self._beside(observations, infos)

    def raw(self, observations: Any) -> np.ndarray:
        """Observations as they are kept: flat vectors, or grey frames of images."""
        if self.frame_shape is not None:
            return grey_frames(np.asarray(observations), self.frame_shape)
        return flattened(self.space, observations)

    def fit(self, raw: np.ndarray) -> None:
        """Once, with the first images there are: their states get the spread a trained encoder's
        have (docs/encoder.md)."""
        network = self.encoding.network
        assert isinstance(network, FrozenEncoder)
        assert self.frame_shape is not None
        if np.any(raw != raw[:1]):  # of equal images nothing can be said
            network = freeze(network.network, self.frame_shape, network.config, raw)
        self.encoding = Encoding(network, self.encoding.own_states)
        self.fitted = True

    def restore(self, encoding: Encoding, fitted: bool) -> None:
        """As it was when it was stored."""
        self.encoding, self.fitted = encoding, fitted

    def _network(self, seed: int) -> StateEncoder | FrozenEncoder | None:
        if self.frame_shape is not None:
            return random_encoder(jax.random.key(seed), self.frame_shape, IMAGE_DIM)
        if self.own is not None:
            return None
        orientation = self.robot.orientation_slice if self.robot is not None else (0, 0)
        # a latent is no part of where the agent is
        width = flat_width(self.space) - latent_dim_of(self.space)
        return make_state_encoder(seed, width, orientation, EMBEDDING_DIM)

    def _beside(self, observations: Any, infos: Infos) -> Float[np.ndarray, "B C"]:
        if self.own is not None:
            return _checked_states(self.own(observations, infos))
        number = _batch_size(observations)
        if self.robot is not None and self.robot.position_dim:
            rows = flattened(self.space, observations)
            told = _infos(infos, number, f"the position of {self.robot.name}")
            try:
                return np.stack(
                    [
                        position_of(self.robot, row, info)
                        for row, info in zip(rows, told, strict=True)
                    ]
                )
            except KeyError as error:
                raise ValueError(
                    f"The infos of {self.robot.name} have no {error}: give position or states."
                ) from error
        if not self.position:
            return np.zeros((number, 0), np.float32)
        if isinstance(self.position[0], str):
            told = _infos(infos, number, f"the position ({', '.join(map(str, self.position))})")
            return _positions_in(told, self.position)
        return flattened(self.space, observations)[:, np.asarray(self.position, np.int64)]


def each_part(function: Callable[..., Any], *observations: Any) -> Any:
    """The function of observations; of dictionaries, a dictionary with that of each part."""
    first = observations[0]
    if not isinstance(first, Mapping):
        return function(*observations)
    return {name: each_part(function, *(one[name] for one in observations)) for name in first}


def stacked(observations: Sequence[Any]) -> Any:
    """Observations [B, ...] of single ones."""
    return each_part(lambda *parts: np.stack([np.asarray(one) for one in parts]), *observations)


def flat_width(space: spaces.Space) -> int:
    """Columns of `flattened`."""
    if isinstance(space, spaces.Dict):
        return sum(flat_width(part) for part in space.spaces.values())
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(np.sum(space.nvec))
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return int(np.prod(space.shape, dtype=int))
    raise ValueError(
        f"Rewards take numbers: the space {space} is not supported; wrap the environment, or give "
        "states."
    )


def flattened(space: spaces.Space, values: Any) -> Float[np.ndarray, "B O"]:
    """A batch of elements of a space as vectors: choices one-hot, numbers as they are, parts of a
    Dict side by side."""
    if isinstance(space, spaces.Dict):
        parts = [flattened(part, values[name]) for name, part in space.spaces.items()]
        return np.concatenate(parts, axis=1)
    values = np.asarray(values)
    if isinstance(space, spaces.Discrete):
        return _one_hot(values.reshape(-1) - int(space.start), int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        columns = values.reshape(len(values), -1)
        widths = space.nvec.reshape(-1)
        return np.concatenate(
            [_one_hot(columns[:, i], int(n)) for i, n in enumerate(widths)], axis=1
        )
    width = flat_width(space)
    if values.ndim == 0 or values.size != len(values) * width:
        raise ValueError(f"A batch of {space} was expected, got an array of shape {values.shape}.")
    return values.reshape(len(values), width).astype(np.float32)


def grey_frames(images: np.ndarray, frame_shape: tuple[int, int]) -> UInt8[np.ndarray, "B H W"]:
    """Images as one grey frame each: the mean of three colours, the newest of a stack."""
    if images.shape[1:] == frame_shape:
        return images.astype(np.uint8)
    channels_last = images.shape[1:3] == frame_shape
    channels = np.moveaxis(images, -1, 1) if channels_last else images
    if channels.ndim != 4 or channels.shape[2:] != frame_shape:
        raise ValueError(
            f"Images of {frame_shape} pixels were expected, got an array of shape {images.shape}."
        )
    if channels.shape[1] == 3:
        return channels.mean(axis=1).astype(np.uint8)
    return np.ascontiguousarray(channels[:, -1]).astype(np.uint8)


def _frame_shape(space: spaces.Space) -> tuple[int, int] | None:
    """Height and width, where the space is one of images."""
    if (
        not isinstance(space, spaces.Box)
        or space.dtype != np.uint8
        or len(space.shape) not in (2, 3)
    ):
        return None
    channels = int(np.argmin(space.shape)) if len(space.shape) == 3 else None
    if channels == 1:
        return None
    height, width = (int(size) for axis, size in enumerate(space.shape) if axis != channels)
    return (height, width) if min(height, width) >= SMALLEST_IMAGE else None


def _described(env_id: str, space: spaces.Space) -> EnvSpec:
    """The library's description of an environment, checked against the observations there are."""
    # of an environment that is no robot, infos and observations alone may not tell what is found
    known = robot_of(registered_name(env_id)) is not None
    spec = describe(env_id, () if known else (NONE,), (), "vectors")
    width = flat_width(space)
    if spec.position_dim and not spec.position_in_info:
        raise ValueError(
            f"{spec.name} does not tell its position in the infos: use its -v5, or give position "
            "or states."
        )
    if width < spec.observation_dim or not isinstance(space, spaces.Box):
        raise ValueError(
            f"{spec.name} observes {spec.observation_dim} numbers as this library makes it, and "
            f"yours {width}: leave out env_id, and give position or states."
        )
    return spec


def _check_columns(position: Sequence[Any], space: spaces.Space) -> None:
    """Refuses columns that observations do not have. Names are looked for when there are infos."""
    columns = [column for column in position if not isinstance(column, str)]
    if columns and not 0 <= min(columns) <= max(columns) < flat_width(space):
        raise ValueError(
            f"position names columns of the observation, which are 0 to {flat_width(space) - 1}; "
            f"got {', '.join(map(str, position))}."
        )


def _infos(infos: Infos, number: int, what: str) -> Sequence[Mapping[str, Any]]:
    if infos is None or len(infos) != number:
        given = "none" if infos is None else str(len(infos))
        raise ValueError(f"The infos of {number} environments are needed for {what}, got {given}.")
    return infos


def _positions_in(
    infos: Sequence[Mapping[str, Any]], names: Sequence[Any]
) -> Float[np.ndarray, "B C"]:
    try:
        rows = [[float(info[name]) for name in names] for info in infos]
    except KeyError as error:
        raise ValueError(
            f"An info has no entry {error}, which position names; it has {', '.join(infos[0])}."
        ) from error
    return np.asarray(rows, np.float32)


def _checked_states(states: Any) -> Float[np.ndarray, "B D"]:
    array = np.asarray(states, np.float32)
    if array.ndim != 2:
        raise ValueError(
            "The function for the states must return an array [B, D], got one of shape "
            f"{array.shape}."
        )
    return array


def _batch_size(observations: Any) -> int:
    return (
        len(next(iter(observations.values())))
        if isinstance(observations, Mapping)
        else len(observations)
    )


def _one_hot(choices: np.ndarray, number: int) -> Float[np.ndarray, "B N"]:
    return np.eye(number, dtype=np.float32)[choices.astype(np.int64)]
