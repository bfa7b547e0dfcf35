"""What Gymnasium makes of a robot's physics, as pure functions of the arrays of L worlds.

    moment          qpos [L, nq], qvel [L, nv], and the arrays of MuJoCo's data that the task reads
    observe         what the agent sees of a moment
    place           the coordinate that is paid for, where velocity is: v = (place' − place) / dt
    judge           reward and end of a step
    start           qpos and qvel of one world at the beginning of an episode

Constants (weights, healthy ranges, noise of resets, which parts are observed) are read from an
environment that Gymnasium has made, so that each of its options means what it means there. As in
Gymnasium, what is read besides qpos and qvel is of the last evaluation within a step (the fourth
stage of Runge–Kutta), not of its end.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Shaped

Moment = Mapping[str, Shaped[Array, "L ..."]]
Start = Callable[[PRNGKeyArray], tuple[Float[Array, " Q"], Float[Array, " V"]]]
Judged = tuple[Float[Array, " L"], Bool[Array, " L"]]
Infos = dict[str, Float[Array, " L"]]


def nothing(moment: Moment) -> Float[Array, " L"]:
    """The place of tasks that pay for no velocity."""
    return jnp.zeros(len(moment["qpos"]))


@dataclass(frozen=True)
class RobotTask:
    """A task; its functions see all worlds at once, except `start`."""

    observe: Callable[[Moment], Float[Array, "L O"]]
    judge: Callable[[Moment, Float[Array, " L"], Float[Array, "L A"]], Judged]
    start: Start
    reads: tuple[str, ...] = ()  # arrays of MuJoCo's data, besides qpos and qvel
    place: Callable[[Moment], Float[Array, " L"]] = nothing
    # entries of info that say where the robot is, at reset and step
    infos: Callable[[Moment], Infos] = lambda moment: {}
    # whether a reset needs physics: what is read cannot be told from qpos and qvel
    starts_with_physics: bool = False


def noisy_start(env: Any, normal_velocity: bool = False) -> Start:
    """Uniform noise around the initial positions and velocities; normal on velocities if so
    said."""
    return noise_around(
        env.init_qpos,
        env.init_qvel,
        env._reset_noise_scale,
        env._reset_noise_scale,
        normal_velocity,
    )


def noise_around(
    qpos: Float[np.ndarray, " Q"],
    qvel: Float[np.ndarray, " V"],
    scale: float,
    velocity_scale: float,
    normal_velocity: bool = False,
) -> Start:
    """The same around any state."""
    middle = jnp.asarray(qpos, jnp.float32), jnp.asarray(qvel, jnp.float32)

    def start(key: PRNGKeyArray) -> tuple[Float[Array, " Q"], Float[Array, " V"]]:
        position_key, velocity_key = jax.random.split(key)
        shift = jax.random.uniform(position_key, middle[0].shape, minval=-1.0)
        kick = (
            jax.random.normal(velocity_key, middle[1].shape)
            if normal_velocity
            else jax.random.uniform(velocity_key, middle[1].shape, minval=-1.0)
        )
        return middle[0] + scale * shift, middle[1] + velocity_scale * kick

    return start


def squares(values: Shaped[Array, "L ..."]) -> Float[Array, " L"]:
    """Sum of squares of each world."""
    return jnp.sum(jnp.square(values), axis=tuple(range(1, values.ndim)))


def inside(values: Shaped[Array, "..."], bounds: tuple[float, float]) -> Bool[Array, "..."]:
    """Strictly between two bounds; what is no number is not."""
    return (bounds[0] < values) & (values < bounds[1])


def flat(values: Shaped[Array, "L ..."]) -> Float[Array, "L N"]:
    return values.reshape(len(values), -1)


def first_coordinate(moment: Moment) -> Float[Array, " L"]:
    return moment["qpos"][:, 0]


def infos_of(names: Mapping[str, int], heights: Mapping[str, tuple[int, float]]) -> Any:
    """Entries of info that are a coordinate, or a coordinate above its initial value."""

    def infos(moment: Moment) -> Infos:
        qpos = moment["qpos"]
        entries = {name: qpos[:, column] for name, column in names.items()}
        entries |= {
            name: qpos[:, column] - np.float32(start) for name, (column, start) in heights.items()
        }
        return entries

    return infos


def infos_on_plane(heights: Mapping[str, tuple[int, float]], distance: bool = True) -> Any:
    """Those of robots that move in a plane: x, y, and the distance from the origin."""
    coordinates = infos_of({"x_position": 0, "y_position": 1}, heights)

    def infos(moment: Moment) -> Infos:
        if not distance:
            return coordinates(moment)
        length = jnp.sqrt(squares(moment["qpos"][:, :2]))
        return coordinates(moment) | {"distance_from_origin": length}

    return infos
