"""Imports go one way: the numeric core knows nothing of reinforcement learning, agents nothing of rewards, and so on."""

import ast
from pathlib import Path

import pytest

import element_rl

PACKAGE = Path(element_rl.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

# room → the rooms of this package it may import from (itself always)
ALLOWED = {
    "distances": set(),
    "cores": set(),
    "files": set(),
    "entropy": {"distances"},
    "memory": {"distances", "files"},
    "encoders": {"files", "settings", "trees"},
    "envs": set(),
    "mlp": set(),
    "agents": {"mlp"},
    "replay": {"memory", "encoders"},
    "rewards": {"distances", "entropy", "memory", "encoders", "mlp", "replay"},
    "intrinsic": {"memory", "encoders", "envs", "replay", "rewards", "on_policy", "files", "trees"},
    "integrations": {"intrinsic", "entropy", "memory", "envs", "rewards", "files"},
    "entropy_range": {"entropy", "rewards"},
    "doctor": {"agents", "entropy_range", "envs", "files", "integrations", "intrinsic", "memory", "rewards", "runs"}
    | {"cores", "options", "provenance", "settings", "__version__"},
    "metrics": {"entropy", "envs", "replay"},
    "trees": set(),
    "settings": set(),
    "options": set(),
    "events": set(),
    "provenance": {"cores", "files"},
    "manifests": {"files"},
    "metrics_log": {"files", "events"},
    "runs": {"files", "manifests", "metrics_log"},
    "plots": {"runs", "files"},
    "datasets": {"files", "envs"},
}
FORBIDDEN_OUTSIDE = {
    "entropy": {"gymnasium", "mujoco"},
    "memory": {"gymnasium", "mujoco"},
    "envs": {"jax", "equinox", "optax"},
}


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(str(node.module))
            names |= {f"{node.module}.{alias.name}" for alias in node.names} if node.module == "element_rl" else set()
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    own = room(path)
    names = imported(path)
    if own in ALLOWED:
        rooms = {name.split(".")[1] for name in names if name.startswith("element_rl.")}
        assert rooms <= ALLOWED[own] | {own}
    outside = {name.split(".")[0] for name in names}
    assert not outside & FORBIDDEN_OUTSIDE.get(own, set())
