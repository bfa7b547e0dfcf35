"""The tests' floor plan is the package's."""

from pathlib import Path

import pytest

import element_rl

HERE, PACKAGE = Path(__file__).parent, Path(element_rl.__file__).parent
# of other folders of the checkout, of whole runs, and what tests share
OWN = {"benchmarks", "docs", "golden", "support"}


def test_tests_stand_where_what_they_test_stands() -> None:
    folders = {str(path.parent.relative_to(HERE)) for path in HERE.rglob("*.py")} - {"."}
    assert {folder for folder in folders if not (PACKAGE / folder).is_dir()} == OWN
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert rooms <= folders


def test_files_that_are_listed_as_slow_are_there(pytestconfig: pytest.Config) -> None:
    conftest = pytestconfig.pluginmanager.get_plugin(str(HERE / "conftest.py"))
    assert [name for name in conftest.SLOW if not (HERE / f"{name}.py").exists()] == []
    assert len(set(conftest.SLOW)) == len(conftest.SLOW)
