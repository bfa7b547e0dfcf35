"""Warp and MuJoCo Warp, which are the extra `[warp]`, and the device that they compute on."""

import functools
import sys
from typing import Any

import jax
import jax.numpy as jnp

MISSING_EXTRA = (
    "Physics by MuJoCo Warp needs the packages mujoco-warp and warp-lang: "
    "pip install 'element-rl[warp]'."
)


@functools.cache
def import_warp() -> tuple[Any, Any]:
    """The modules warp and mujoco_warp. Warp greets and reports each kernel; it is told not to,
    unless someone has loaded it before."""
    first = "warp" not in sys.modules
    try:
        import warp as wp

        if first:
            wp.config.log_level = wp.LOG_ERROR
        import mujoco_warp as mjw
    except ImportError as error:
        raise ValueError(MISSING_EXTRA) from error
    return wp, mjw


def warp_device() -> Any:
    """Warp's name for the device that JAX computes on."""
    wp, _ = import_warp()
    with jax.ensure_compile_time_eval():
        device = next(iter(jnp.zeros(()).devices()))
    if device.platform not in ("cpu", "gpu", "cuda"):
        raise ValueError(
            f"MuJoCo Warp runs on NVIDIA GPUs and on the CPU, not on {device.platform}: set "
            "JAX_PLATFORMS=cpu."
        )
    return wp.device_from_jax(device)
