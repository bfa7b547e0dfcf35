"""Imports go one way: every room of the package says which others it may use, and the list has no
circle."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import element_rl

PACKAGE = Path(element_rl.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

NUMERIC = {"distances", "entropy", "mlp", "storage"}
SEEING = NUMERIC | {"envs", "encoders", "memory", "replay"}
LEARNING = SEEING | {"acting", "agents", "population", "rewards", "runs", "worlds"}
# room → the rooms that it may import from, besides itself
ALLOWED: dict[str, set[str]] = {
    "foreign": set(),
    "distances": set(),
    "mlp": set(),
    "population": set(),
    "storage": set(),
    "entropy": {"distances"},
    "envs": set(),
    "memory": {"distances", "storage"},
    "encoders": {"storage"},
    "replay": set(),
    "acting": {"envs", "foreign"},
    "agents": {"acting", "mlp"},
    "worlds": {"envs", "acting", "agents", "population"},
    "rewards": SEEING - {"envs"},
    "runs": {"acting", "storage"},
    "plots": {"runs", "storage"},
    "tracking": {"runs", "storage"},
    "pages": {"plots"},
    "watch": {"pages", "plots", "runs", "storage"},
    "datasets": {"storage"},
    "integrations": SEEING | {"rewards"},
    "doctor": LEARNING | {"integrations"},
    "training": LEARNING,
    "training/off_policy": LEARNING | {"training"},
    "training/on_policy": LEARNING | {"training"},
    "training/offline": LEARNING | {"datasets", "training", "training/off_policy"},
    "training/encoder": LEARNING | {"training/off_policy"},
    "datasets/collecting": LEARNING | {"datasets", "training/off_policy", "training/on_policy"},
    "training/finetune": LEARNING
    | {"datasets/collecting", "plots", "training"}
    | {"training/off_policy", "training/on_policy"},
    "evaluate": LEARNING | {"training/off_policy", "training/on_policy"},
}
TRAINING = {room for room in ALLOWED if "/" in room}
STUDYING = LEARNING | TRAINING | {"datasets", "evaluate", "pages", "plots", "tracking"}
ALLOWED |= {
    "studies": STUDYING,
    "hub": STUDYING | {"studies"},
    "commands": STUDYING | {"doctor", "studies", "integrations", "hub", "watch"},
    "cli": {"foreign", "runs", "commands"},
}
WITHOUT_JAX = ("envs", "acting")  # environment workers load these
FORBIDDEN = {room: {"jax", "equinox", "optax"} for room in WITHOUT_JAX} | {
    room: {"gymnasium", "mujoco"}
    for room in ("distances", "entropy", "mlp", "memory", "replay", "rewards", "agents")
}


def room(path: Path) -> str:
    """The folder or file of the package that a module is in; the longest of the names above."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return "/".join(parts[:2]) if "/".join(parts[:2]) in ALLOWED else parts[0]


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(str(node.module))
            names |= (
                {f"{node.module}.{alias.name}" for alias in node.names}
                if node.module == "element_rl"
                else set()
            )
    return names


def rooms(names: set[str]) -> set[str]:
    modules = {
        name.removeprefix("element_rl.").replace(".", "/")
        for name in names
        if name.startswith("element_rl.")
    }
    return {room(PACKAGE / module) for module in modules} - {"__version__"}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    if path == PACKAGE / "__init__.py":
        return  # it offers `IntrinsicReward` and `RolloutReward`, loaded when they are asked for
    own, names = room(path), imported(path)
    assert rooms(names) <= ALLOWED[own] | {own}
    assert not {name.split(".")[0] for name in names} & FORBIDDEN.get(own, set())


def test_every_room_has_a_rule_and_there_is_no_circle() -> None:
    assert {room(path) for path in MODULES} - {"__init__"} == set(ALLOWED)
    assert list(TopologicalSorter(ALLOWED).static_order())
