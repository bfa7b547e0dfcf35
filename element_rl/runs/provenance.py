"""Where a run comes from: versions, commit and hardware, and whether two runs have the same
settings."""

import contextlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import element_rl
from element_rl.acting.cores import usable_cores
from element_rl.storage.files import to_json


def versions() -> dict[str, str | None]:
    """Versions of Python, of this package and of what its numbers depend on; None where not
    installed."""
    found: dict[str, str | None] = {
        "python": platform.python_version(),
        "element_rl": element_rl.__version__,
    }
    for name in ("jax", "jaxlib", "numpy", "equinox", "optax", "gymnasium", "mujoco", "faiss"):
        distributions = ("faiss-cpu", "faiss-gpu", "faiss") if name == "faiss" else (name,)
        found[name] = None
        for distribution in distributions:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                found[name] = found[name] or importlib.metadata.version(distribution)
    return found


def commit() -> str | None:
    """The git commit of this source tree, with `-dirty` if it was changed since; None if it is not
    a checkout."""
    package = Path(__file__).parent
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(package), *arguments]
        return subprocess.run(
            command, capture_output=True, check=True, text=True, timeout=30, env=environment
        ).stdout

    try:
        # a package installed inside some other checkout is not of it
        git("ls-files", "--error-unmatch", "__init__.py")
        return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*").strip()
    except (OSError, subprocess.SubprocessError):
        return None


def hardware() -> dict[str, Any]:
    """The number of CPUs this process may use, their model, and JAX's devices."""
    import jax  # here: the rest of this module is of use without loading it

    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        names = re.findall(
            r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE
        )
        model = names[0] if names else model
    return {
        "cpu_count": usable_cores(),
        "cpu_model": model,
        "devices": [device.device_kind for device in jax.devices()],
    }


def hardware_text(found: Mapping[str, Any] | None) -> str:
    """What `hardware` found, in words."""
    if not found:
        return "unknown"
    devices = ", ".join(
        dict.fromkeys(str(device) for device in found["devices"] if device != "cpu")
    )
    return f"{found['cpu_count']} CPUs ({found['cpu_model']}){', ' + devices if devices else ''}"


def versions_text(found: Mapping[str, Any] | None) -> str:
    """What `versions` found, in words."""
    return ", ".join(f"{name} {version}" for name, version in (found or {}).items() if version)


def config_difference(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    may_differ: Collection[str] = ("steps", "out", "resume"),
) -> str | None:
    """One sentence that names every setting in which two configs differ, or None; `may_differ` is
    left out."""
    before, now = (
        _flattened(
            {name: value for name, value in to_json(config).items() if name not in may_differ}
        )
        for config in (old, new)
    )
    fields = [
        name for name in {**before, **now} if before.get(name, "absent") != now.get(name, "absent")
    ]
    if not fields:
        return None
    changes = ", ".join(
        f"{name} was {before.get(name, 'absent')} and is {now.get(name, 'absent')}"
        for name in fields
    )
    return (
        f"The run was started with other settings ({changes}): resume it with its own, or choose "
        "another --out."
    )


def _flattened(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Settings as text under dotted names."""
    flat: dict[str, str] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flattened(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = json.dumps(value, ensure_ascii=False)
    return flat
