"""Is the installation sound: versions, devices, threads, extras, disk, MuJoCo, Warp."""

import contextlib
import importlib.metadata
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from packaging.requirements import Requirement

from element_rl import __version__
from element_rl.acting.cores import usable_cores
from element_rl.doctor.findings import Finding, checked
from element_rl.doctor.warp_installation import check_warp
from element_rl.population import number_of_devices
from element_rl.runs.provenance import versions

DISTRIBUTION = "element-rl"
OLDEST_PYTHON = (3, 11)
# bytes; the checkpoint of one agent with a million transitions takes some hundred million
LITTLE_SPACE = 5e9
EXTRAS = {  # extra → the modules that say it is there, and what it is for
    "atari": (("ale_py",), "Atari games"),
    "cuda": (("jax_cuda13_plugin", "jax_cuda12_plugin"), "JAX on an NVIDIA GPU"),
    "datasets": (("minari",), "element collect and element offline"),
    "dm-control": (("dm_control",), "the DeepMind Control Suite"),
    "envpool": (("envpool",), "faster environments"),
    "hub": (("huggingface_hub",), "element push and element pull"),
    "mario": (("stable_retro",), "Super Mario Bros"),
    "mlflow": (("mlflow",), "--track mlflow"),
    "parquet": (("pyarrow",), "element collect --export parquet"),
    "ray": (("ray",), "studies on many machines"),
    "robotics": (("gymnasium_robotics",), "Gymnasium-Robotics"),
    "sb3": (("stable_baselines3",), "Stable-Baselines3 and SBX"),
    "trackio": (("trackio",), "--track trackio"),
    "wandb": (("wandb",), "--track wandb"),
    "warp": (("mujoco_warp",), "element explore --physics warp"),
}


def check_installation(out: Path) -> Iterator[Finding]:
    """All checks of the installation; `out` is where runs would go."""
    yield check_python()
    yield check_packages()
    yield check_devices()
    yield check_threads()
    yield check_extras()
    yield check_disk(out)
    yield check_mujoco()
    yield check_warp()


def check_python(version: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    """Python is new enough."""
    sentence = f"Python {'.'.join(map(str, version))}, element-rl {__version__}."
    advice = "Install Python 3.11 or newer and make a new environment with it."
    return checked("Python", version[:2] >= OLDEST_PYTHON, sentence, advice, {}, status="fail")


def check_packages(distribution: str = DISTRIBUTION) -> Finding:
    """Everything the package needs is there, in versions that go together."""
    found = versions()
    listed = ", ".join(
        f"{name} {found[name] or 'missing'}"
        for name in ("jax", "numpy", "gymnasium", "mujoco", "faiss")
    )
    broken = [*broken_requirements(distribution), *mismatched_plugins(), *_two_of_one_kind()]
    sentence = f"{'; '.join(broken)}." if broken else f"{listed}; all requirements are met."
    advice = f"Install again what belongs together: pip install --upgrade {distribution}"
    values = {"versions": found, "broken": broken}
    return checked("packages", not broken, sentence, advice, values, status="fail")


def broken_requirements(distribution: str) -> list[str]:
    """What a distribution needs, and what those need, that is missing or has a version they do not
    take."""
    broken, seen = [], set()
    waiting: list[tuple[str, frozenset[str]]] = [(distribution, frozenset())]
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        for text in importlib.metadata.requires(name) or []:
            requirement = Requirement(text)
            marker = requirement.marker
            if marker is not None and not any(
                marker.evaluate({"extra": extra}) for extra in (*extras, "")
            ):
                continue
            try:
                there = importlib.metadata.version(requirement.name)
            except importlib.metadata.PackageNotFoundError:
                broken.append(f"{name} needs {requirement.name}, which is missing")
                continue
            if not requirement.specifier.contains(there, prereleases=True):
                broken.append(
                    f"{name} needs {requirement.name}{requirement.specifier}, but {there} is there"
                )
            waiting.append((requirement.name, frozenset(requirement.extras)))
    return broken


def mismatched_plugins() -> list[str]:
    """CUDA plug-ins of JAX that are of another version than its library: JAX then runs on the CPU,
    or not at all."""
    jaxlib, wrong = importlib.metadata.version("jaxlib"), []
    for plugin in ("jax-cuda12-plugin", "jax-cuda13-plugin"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            version = importlib.metadata.version(plugin)
            if version != jaxlib:
                wrong.append(f"{plugin} {version} does not go with jaxlib {jaxlib}")
    return wrong


def _two_of_one_kind() -> list[str]:
    both = _is_installed("faiss-cpu") and _is_installed("faiss-gpu")
    return ["faiss-cpu and faiss-gpu overwrite each other, and both are there"] if both else []


def _is_installed(distribution: str) -> bool:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return bool(importlib.metadata.version(distribution))
    return False


def check_devices(device_files: Path = Path("/dev")) -> Finding:
    """JAX sees the accelerator that the machine has."""
    import jax

    devices = [f"{device.device_kind} ({device.platform})" for device in jax.devices()]
    used = number_of_devices(agents=len(devices))  # of as many agents as there are devices
    shared = f", of which element explore uses {used}" if len(devices) > 1 else ""
    shared += " (--devices): the agents of a run share them, the same number on each" * (used > 1)
    sentence = f"JAX computes on {', '.join(devices)}{shared}"
    gpus = sorted(path.name for path in device_files.glob("nvidia[0-9]*"))
    values = {"devices": devices, "used": used, "nvidia": gpus}
    if jax.default_backend() != "cpu" or not gpus:
        return Finding("devices", "ok", f"{sentence}.", values=values)
    advice = f"pip install '{DISTRIBUTION}[cuda]', then look again."
    if os.environ.get("JAX_PLATFORMS", "") == "cpu":
        advice = "JAX_PLATFORMS=cpu is set: unset it, unless you mean it."
    sentence = f"{sentence}, though the machine has an NVIDIA GPU."
    return Finding("devices", "warn", sentence, advice, values)


def check_threads(quota_file: Path = Path("/sys/fs/cgroup/cpu.max")) -> Finding:
    """Threads of NumPy and FAISS are no more than the cores."""
    cores = usable_cores()
    allowed = min(cores, cpu_quota(quota_file) or cores)
    lapack, openmp = os.environ.get("OPENBLAS_NUM_THREADS"), os.environ.get("OMP_NUM_THREADS")
    values = {
        "cores": cores,
        "allowed": allowed,
        "OPENBLAS_NUM_THREADS": lapack,
        "OMP_NUM_THREADS": openmp,
    }
    there = f"{cores} core{'s' if cores > 1 else ''}"
    threads = int(openmp) if openmp is not None and openmp.isdigit() else None
    if allowed < cores and (threads is None or threads > allowed):
        sentence = f"{there} can be seen, but this process may use only {allowed:g} of them."
        most = max(int(allowed), 1)
        advice = f"Set OMP_NUM_THREADS={most}: more threads than cores wait for each other."
    elif threads is not None and threads > cores:
        sentence = f"{there}, but OMP_NUM_THREADS is {openmp}."
        advice = f"Set OMP_NUM_THREADS={cores} or unset it."
    elif lapack != "1":
        wait = "LAPACK's threads wait busily, and slow down whatever runs beside them"
        sentence = f"{there}; OPENBLAS_NUM_THREADS is {lapack or 'not set'}: {wait}."
        advice = "Set OPENBLAS_NUM_THREADS=1 before NumPy is loaded, as the command element does."
    else:
        return Finding("threads", "ok", f"{there}; one thread for LAPACK.", values=values)
    return Finding("threads", "warn", sentence, advice, values)


def cpu_quota(quota_file: Path) -> float | None:
    """Cores' worth of time that a container may use; None where nothing limits it."""
    with contextlib.suppress(OSError, ValueError):
        quota, period = quota_file.read_text().split()
        return int(quota) / int(period)
    return None


def check_extras() -> Finding:
    """Which optional parts are there."""
    there = {
        name: any(importlib.util.find_spec(m) for m in modules)
        for name, (modules, _) in EXTRAS.items()
    }
    absent = [f"{name} ({EXTRAS[name][1]})" for name, is_there in there.items() if not is_there]
    present = ", ".join(name for name, is_there in there.items() if is_there) or "none"
    sentence = f"There: {present}." + (f" Not there: {', '.join(absent)}." if absent else "")
    return Finding("extras", "ok", sentence, values=there)


def check_disk(out: Path) -> Finding:
    """A run folder can be written where runs go, and there is space for it."""
    existing = next(path for path in (out.absolute(), *out.absolute().parents) if path.exists())
    try:
        with tempfile.NamedTemporaryFile(dir=existing, prefix=".element-doctor-") as file:
            file.write(bytes(1_000_000))
            file.flush()
            os.fsync(file.fileno())
        free = shutil.disk_usage(existing).free
    except OSError as error:
        sentence = f"Nothing can be written to {existing} ({error.strerror})."
        advice = "Go to another folder, or give one that can be written with --out."
        return Finding("disk", "fail", sentence, advice)
    sentence = f"Runs can be written to {out}; {free / 1e9:,.0f} GB are free."
    advice = "Make room, or keep runs small: --replay-size 100000 --checkpoint-every N."
    return checked("disk", free >= LITTLE_SPACE, sentence, advice, {"free_bytes": free})


def check_mujoco(env: str = "Hopper-v5") -> Finding:
    """A robot can be simulated."""
    from element_rl.envs.make import make_env

    try:
        made = make_env(env)
        made.reset(seed=0)
        observations = [made.step(made.action_space.sample())[0] for _ in range(10)]
        made.close()
    except Exception as error:  # whatever MuJoCo and its bindings may raise
        sentence = f"{env} cannot be stepped: {type(error).__name__}: {error}"
        return Finding("MuJoCo", "fail", sentence, "pip install --upgrade mujoco gymnasium")
    if not np.isfinite(observations).all():
        sentence = f"{env} observes numbers that are not finite."
        return Finding("MuJoCo", "fail", sentence, "pip install --upgrade mujoco")
    return Finding("MuJoCo", "ok", f"{env} steps.")
