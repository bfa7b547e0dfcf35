"""Every Python block of README and docs runs, as it is displayed but for its budget.

The blocks of a page run in order and share their names, in a folder where the things are that the
page talks about: a run of a Hopper, a dataset of it, an encoder. What is displayed is of a useful
size; before it runs, numbers that are budgets (`steps=100_000`, `model.learn(50_000)`,
`range(10_000)`) are lowered, and nothing else is changed.
"""

import ast
import importlib
import importlib.util
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support.documents import DOCUMENTS, ROOT, blocks, name_of

from element_rl import cli
from element_rl.encoders.frozen import random_encoder, save_encoder
from element_rl.envs.mario_emulator import ROM_PACKAGE

BUDGETS = {"steps", "num_steps", "total_timesteps", "timesteps", "updates", "samples", "iterations"}
LARGEST = 128  # of a budget, where the page below says nothing else
LARGEST_RANGE = 1_000  # a loop over environment steps; shorter ones may be meant as they are
LARGEST_OF = {"docs/offline.md": 2, "docs/on-policy.md": 32}  # what learns there is slow
WITH_PYTHON = [document for document in DOCUMENTS if blocks(document, "python")]
HOPPER = (
    "explore Hopper-v5 --steps 128 --seeds 2 --checkpoint-every 64 --workers 0 --random-seeds 0 "
    "--no-figures "
    "--sac.hidden-sizes 16 16 --out runs/hopper"
)
HOPPER_DATA = "collect runs/hopper --steps 256 --dataset hopper/element-v0 --workers 0"


class Smaller(ast.NodeTransformer):
    """Lowers budgets."""

    def __init__(self, largest: int) -> None:
        self.largest = largest

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        self.generic_visit(node)
        if node.arg in BUDGETS:
            node.value = self._lowered(node.value)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        if any(
            isinstance(target, ast.Name) and target.id.lower() in BUDGETS for target in node.targets
        ):
            node.value = self._lowered(node.value)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        called = (
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        )
        if called == "learn" and node.args:
            node.args[0] = self._lowered(node.args[0])
        if called == "range" and len(node.args) == 1:
            node.args = [self._lowered(node.args[0], LARGEST_RANGE)]
        return node

    def _lowered(self, value: ast.expr, largest: int | None = None) -> ast.expr:
        largest = largest or self.largest
        if (
            isinstance(value, ast.Constant)
            and isinstance(value.value, int)
            and value.value > largest
        ):
            return ast.copy_location(ast.Constant(largest), value)
        return value


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the commands on the pages would have made before."""
    folder = tmp_path_factory.mktemp("made")
    if importlib.util.find_spec("torch"):
        # its threads wait for each other by spinning
        importlib.import_module("torch").set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert cli.main(HOPPER.split()) == 0
    frames = np.random.default_rng(0).integers(0, 255, (8, 84, 84), np.uint8)
    save_encoder(
        folder / "runs" / "rooms-encoder",
        random_encoder(jax.random.key(0), (84, 84), frames=frames),
    )
    (folder / "examples").symlink_to(ROOT / "examples")
    return folder


@pytest.mark.filterwarnings("ignore:jax.core.:DeprecationWarning")  # what SBX imports
# true, of a budget this small
@pytest.mark.filterwarnings("ignore:No episode has ended:UserWarning")
@pytest.mark.filterwarnings("ignore:The lifelong memory:UserWarning")  # likewise
@pytest.mark.parametrize("document", WITH_PYTHON, ids=name_of)
def test_code_of_the_page_runs(
    document: Path,
    made: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _needs(document)
    place = tmp_path / "place"
    shutil.copytree(made, place, symlinks=True)
    monkeypatch.chdir(place)
    # so that a dataset's folder is where its name says
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(place))
    if document.name == "offline.md":
        assert cli.main(HOPPER_DATA.split()) == 0
    names: dict[str, Any] = {"__name__": "documentation"}
    smaller = Smaller(LARGEST_OF.get(name_of(document), LARGEST))
    for line, block in blocks(document, "python"):
        tree = ast.fix_missing_locations(smaller.visit(ast.parse(block)))
        ast.increment_lineno(tree, line - 1)  # so that a failure names the line of the page
        with jax.numpy_rank_promotion("allow"):  # SBX does it
            exec(compile(tree, name_of(document), "exec"), names)


def test_budgets_and_nothing_else_are_lowered() -> None:
    code = (
        "steps = 5000\nmodel.learn(9000)\nmodel.learn(total_timesteps=9000)\n"
        "f(steps=10, size=9000)\nrange(300)\nrange(9000)"
    )
    lowered = ast.unparse(Smaller(300).visit(ast.parse(code)))
    assert lowered.splitlines() == [
        "steps = 300",
        "model.learn(300)",
        "model.learn(total_timesteps=300)",
        "f(steps=10, size=9000)",
        "range(300)",
        "range(1000)",
    ]


def _needs(document: Path) -> None:
    if document.name == "mario.md" and not all(
        map(importlib.util.find_spec, ("stable_retro", ROM_PACKAGE))
    ):
        pytest.skip("NOT TESTED: the code of docs/mario.md, for Super Mario Bros is not installed.")
