"""Worlds on the device by the name of an environment."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import gymnasium

from element_rl.envs.latents import parted_options
from element_rl.envs.make import make_env
from element_rl.envs.spec import EnvSpec
from element_rl.worlds.contract import Worlds
from element_rl.worlds.functional import FunctionalWorlds
from element_rl.worlds.latents import LatentWorlds
from element_rl.worlds.point_maze import PointMazeWorlds
from element_rl.worlds.warp_worlds import warp_worlds

Physics = Literal["host", "warp", "jax"]
"""Who steps environments: worker processes on the host, MuJoCo Warp, or a JAX program."""


def make_worlds(physics: Physics, spec: EnvSpec, env_options: Mapping[str, Any]) -> Worlds:
    """The worlds of an environment, or a ValueError that says why there are none."""
    options, latent = parted_options(env_options)
    if latent is None:
        return _MAKERS[physics](spec, options)
    own = replace(spec, observation_shape=(spec.task_dim,), latent_dim=0)
    return LatentWorlds(spec, _MAKERS[physics](own, options), latent)


def _jax_worlds(spec: EnvSpec, env_options: Mapping[str, Any]) -> Worlds:
    if spec.name == "PointMaze-v0":
        return PointMazeWorlds(spec)
    env = make_env(spec.name, **env_options)
    try:
        functional = _functional_of(env)
    finally:
        env.close()
    if functional is None:
        raise ValueError(
            f"--physics jax is for environments with pure functions, such as PointMaze-v0 or "
            f"phys2d/Pendulum-v0, and {spec.name} has none (docs/worlds.md): leave it out, or take "
            "--physics warp for a MuJoCo robot."
        )
    return FunctionalWorlds(spec, functional)


def _functional_of(env: gymnasium.Env) -> Any:
    return getattr(env.unwrapped, "func_env", None)


def _warp_worlds(spec: EnvSpec, env_options: Mapping[str, Any]) -> Worlds:
    return warp_worlds(spec.name, env_options, spec)


_MAKERS: dict[str, Callable[[EnvSpec, Mapping[str, Any]], Worlds]] = {
    "jax": _jax_worlds,
    "warp": _warp_worlds,
}
