"""The notebooks run from their first cell to the last, and are committed with output of a run that
went well."""

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from support.notebooks import METADATA, NOTEBOOKS, run_notebook

TINY: dict[str, dict[str, Any]] = {
    "01_explore_and_look.ipynb": {"ENV": "PointMaze-v0", "STEPS": 500, "EPISODES": 1},
    "02_add_to_sb3.ipynb": {"STEPS": 1_000, "SEEDS": (0,), "SAC_STEPS": 520},
    "03_write_and_compare_a_reward.ipynb": {"STEPS": 500, "SEEDS": 2, "REWARDS": ["re3"]},
}
# of a machine: home folders, temporary ones, the folder of an installation
PLACES = re.compile(
    r"(?<![\w.])/(?:home|root|tmp|Users|usr|opt|var|work|content|mnt)/|site-packages"
)
LARGEST = 1_000_000  # bytes of a notebook

each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


def text_of(output: Any) -> str:
    data = {kind: text for kind, text in output.get("data", {}).items() if kind != "image/png"}
    return f"{output.get('text', '')}{data}"


def test_there_are_three() -> None:
    assert [path.name for path in NOTEBOOKS] == list(TINY)


@each
def test_it_runs(path: Path, tmp_path: Path) -> None:
    notebook = run_notebook(path, tmp_path, TINY[path.name])
    assert [output.text for output in outputs(notebook) if output.get("name") == "stderr"] == []


@each
def test_it_is_committed_with_its_output(path: Path) -> None:
    notebook = nbformat.read(path, 4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert any("image/png" in output.get("data", {}) for output in outputs(notebook))
    for output in outputs(notebook):
        assert output.output_type != "error"
        assert output.get("name") != "stderr"
        assert not PLACES.search(text_of(output)), text_of(output)
    assert notebook.metadata == METADATA
    assert {key for cell in notebook.cells for key in cell.metadata} <= {"tags"}
    assert path.stat().st_size < LARGEST


@each
def test_it_can_be_given_to_colab(path: Path) -> None:
    first, install = nbformat.read(path, 4).cells[:2]
    assert "](https://colab.research.google.com/" in first.source
    assert f"`{path.name}`" in first.source
    assert re.search(r'^ {4}%pip install --quiet "element-rl(\[sb3\])?"$', install.source, re.M)
    assert install.outputs == []  # it is installed


@each
def test_links_lead_somewhere(path: Path) -> None:
    text = "\n".join(
        cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "markdown"
    )
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert target.startswith("https://") or (path.parent / target).exists(), target
