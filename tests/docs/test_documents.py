"""Links of README and docs lead somewhere, examples run, and the package itself stays light."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from support.documents import DOCUMENTS, ROOT, name_of, without_fences

TINY = 150  # steps of an example


@pytest.mark.filterwarnings("ignore:jax.core.:DeprecationWarning")  # what SBX imports
# true, of a budget this small
@pytest.mark.filterwarnings("ignore:No episode has ended:UserWarning")
@pytest.mark.filterwarnings("ignore:The lifelong memory:UserWarning")  # likewise
@pytest.mark.parametrize(
    "example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name
)
def test_examples_run(
    example: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    budget = ["--steps", str(TINY)] if "--steps" in example.read_text() else []
    monkeypatch.setattr(sys, "argv", [str(example), *budget])
    monkeypatch.chdir(tmp_path)
    with jax.numpy_rank_promotion("allow"):  # SBX does it
        runpy.run_path(str(example), run_name="__main__")


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text()):
        if not target.startswith("http"):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_code_is_fenced(document: Path) -> None:
    """Code that is only indented would be neither coloured nor tested."""
    assert (
        re.findall(
            r"^ {4,}(?:import|from|element|pip|python|make) .*",
            without_fences(document),
            flags=re.M,
        )
        == []
    )


@pytest.mark.parametrize("document", [*DOCUMENTS, ROOT / "CHANGELOG.md"], ids=name_of)
def test_prose_is_within_100_columns(document: Path) -> None:
    """Tables, equations and pictures may be wider, and what benchmarks write between markers."""
    text = re.sub(r"^<!-- begin .*?^<!-- end ", "", without_fences(document), flags=re.S | re.M)
    lines = [line for line in text.splitlines() if not re.match(r" *(?:\||!\[)", line)]
    assert [line for line in lines if len(line) > 100] == []


def test_the_package_itself_loads_nothing_heavy() -> None:
    """Workers import parts of it: JAX must not come along."""
    modules = "element_rl.acting.collector, element_rl.acting.host_policy"
    code = f"import sys, {modules}; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
