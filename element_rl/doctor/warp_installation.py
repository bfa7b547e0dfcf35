"""Can MuJoCo Warp step worlds on the device: is it there, does it start, does it see the GPU that
JAX computes on, and can it keep the kernels that it compiles?"""

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

from element_rl.doctor.findings import Finding

NAME = "MuJoCo Warp"
INSTALL = "pip install 'element-rl[warp]'"


def check_warp(modules: tuple[str, ...] = ("warp", "mujoco_warp")) -> Finding:
    """Whether it can be used. It is an extra: where it is not there, nothing is wrong."""
    absent = [name for name in modules if importlib.util.find_spec(name) is None]
    if len(absent) == len(modules):
        return Finding(NAME, "ok", f"Not there: physics on the device needs it ({INSTALL}).")
    if absent:
        sentence = f"Only a part of it is there: {', '.join(absent)} is missing."
        return Finding(NAME, "warn", sentence, INSTALL)
    from element_rl.worlds.warp_loading import import_warp

    try:
        wp, _ = import_warp()
        wp.init()
    except Exception as error:  # whatever its libraries may raise
        sentence = f"It does not start: {type(error).__name__}: {error}"
        return Finding(NAME, "fail", sentence, f"Install it again: {INSTALL} --force-reinstall")
    return judged(_found(wp), Path(wp.config.kernel_cache_dir))


def _found(wp: Any) -> dict[str, Any]:
    """Versions and devices."""
    import jax

    driver = wp.get_cuda_driver_version()
    return {
        "warp": wp.config.version,
        "devices": [device.name for device in wp.get_cuda_devices()],
        "driver": None if driver is None else ".".join(map(str, driver)),
        "jax": jax.default_backend(),
    }


def judged(found: dict[str, Any], cache: Path) -> Finding:
    """What is to be said of the versions and devices that were found, and of the folder where
    compiled kernels are kept."""
    values = found | {"kernel_cache": str(cache)}
    seen = ", ".join(found["devices"])
    driver = found["driver"]
    where = f"{seen}, driver for CUDA {driver}" if seen else "no GPU"
    if found["jax"] == "gpu" and not seen:
        sentence = f"Warp {found['warp']} sees no GPU, but JAX computes on one."
        advice = "Update the NVIDIA driver: Warp needs one for its own CUDA version."
        return Finding(NAME, "warn", sentence, advice, values)
    if not _is_writable(cache):
        sentence = f"Warp cannot keep compiled kernels in {cache}."
        advice = "Set WARP_CACHE_PATH to a folder that can be written."
        return Finding(NAME, "warn", sentence, advice, values)
    sentence = f"Warp {found['warp']} starts ({where}); compiled kernels are kept in {cache}."
    return Finding(NAME, "ok", sentence, values=values)


def _is_writable(folder: Path) -> bool:
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".element-doctor-"):
            return True
    except OSError:
        return False
