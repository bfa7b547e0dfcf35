"""What is published: the wheel and the source distribution are built, installed apart from the
checkout, and used.

The installed command runs with the core dependencies only: imports of what belongs to an extra are
refused.
"""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from support.notebooks import NOTEBOOKS

import element_rl
from element_rl.cli import COMMANDS, NOBODY_READS

CHECKOUT = Path(element_rl.__file__).parents[1]
PROJECT = CHECKOUT / "pyproject.toml"
pytestmark = pytest.mark.skipif(
    not PROJECT.is_file(), reason="needs the source tree, not an installed package"
)

EXTRAS = [  # modules of the optional extras; the core must do without them
    *(
        "envpool",
        "flax",
        "gym",
        "h5py",
        "minari",
        "nes_py",
        "pandas",
        "pyarrow",
        "ray",
        "sb3_contrib",
        "sbx",
    ),
    *("sklearn", "stable_baselines3", "stable_retro", "torch", "yaml"),
]
REFUSE_EXTRAS = f"""
import sys

class Refusal:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS!r}:
            reason = f"No module named {{name!r}}: the core must do without it"
            raise ModuleNotFoundError(reason, name=name)

sys.meta_path.insert(0, Refusal())
"""
TINY_RUN = [
    *(
        "explore",
        "PointMaze-v0",
        "--reward",
        "random",
        "--steps",
        "60",
        "--env-options",
        "max_episode_steps=20",
    ),
    *(
        "--workers",
        "0",
        "--chunk-steps",
        "20",
        "--random-seeds",
        "0",
        "--no-figures",
        "--out",
        "run",
    ),
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution, and the wheel installed under site."""
    pytest.importorskip(
        "hatchling", reason="the distributions are built by hatchling: install the extra dev"
    )
    folder = tmp_path_factory.mktemp("distributions")
    build = ["hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(folder)]
    subprocess.run([sys.executable, "-m", *build], cwd=CHECKOUT, check=True, capture_output=True)
    install = [
        "pip",
        "install",
        "--no-deps",
        "--no-index",
        "--disable-pip-version-check",
        "--target",
        folder / "site",
    ]
    subprocess.run(
        [sys.executable, "-m", *install, *folder.glob("*.whl")], check=True, capture_output=True
    )
    (folder / "site" / "sitecustomize.py").write_text(REFUSE_EXTRAS)
    return folder


def installed(built: Path, *command: str, **options: object) -> subprocess.CompletedProcess[str]:
    """A command run with the installed wheel, in a folder that is not the checkout."""
    environment = os.environ | {"PYTHONPATH": str(built / "site")}
    kwargs = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.run(command, cwd=built, env=environment, text=True, **kwargs)  # type: ignore[call-overload]


def package_files() -> set[str]:
    """Every file of the package in the checkout."""
    files = (path for path in (CHECKOUT / "element_rl").rglob("*") if path.is_file())
    return {
        path.relative_to(CHECKOUT).as_posix() for path in files if "__pycache__" not in path.parts
    }


def documentation_sources() -> set[str]:
    """What `make docs` reads: the pages and what they link to, the files that mkdocs.yml names."""
    settings = (CHECKOUT / "mkdocs.yml").read_text()
    sources = {"mkdocs.yml", *re.findall(r"\bdocs_site/\w+\.py", settings)}
    for page in (CHECKOUT / "docs").rglob("*"):
        sources.add(page.relative_to(CHECKOUT).as_posix())
        for target in (
            re.findall(r"\]\(([^)#:]+)[)#]", page.read_text()) if page.suffix == ".md" else ()
        ):
            sources.add((page.parent / target).resolve().relative_to(CHECKOUT).as_posix())
    return {path for path in sources if (CHECKOUT / path).is_file()}


def test_the_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
        metadata = Parser().parsestr(
            wheel.read(next(n for n in names if n.endswith("METADATA"))).decode()
        )
    about = {name for name in names if ".dist-info/" in name}
    assert names - about == package_files()
    assert "element_rl/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in about)
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "MIT"
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)} <= {
        *metadata.get_all("Classifier")
    }


def test_the_page_of_the_package_has_no_link_that_leads_nowhere(built: Path) -> None:
    """A package index shows the README alone: neither docs/ nor figures are beside it."""
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith("METADATA"))
        metadata = Parser().parsestr(wheel.read(name).decode())
    page = metadata.get_payload()
    assert page.startswith("# element-rl")
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert [
        target for target in re.findall(r"\]\(([^)]*)\)", page) if not target.startswith("https://")
    ] == []
    named = re.findall(r"`((?:docs/|CONTRIBUTING)[^`]*\.md)`", page)
    assert len(named) > 20
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        assert set(named) <= {name.partition("/")[2] for name in archive.getnames()}


def test_the_source_distribution_can_be_tested_and_documented(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert package_files() <= names
    wanted = [
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "CITATION.cff",
        "Makefile",
        "constraints.txt",
        "pyproject.toml",
    ]
    assert set(wanted) <= names
    for folder in ("tests", "benchmarks", "docs", "docs_site", "examples"):
        assert any(name.startswith(f"{folder}/") for name in names), folder
    assert not [path for path in documentation_sources() if path not in names]
    assert {f"examples/notebooks/{path.name}" for path in NOTEBOOKS} <= names
    leftovers = ("runs/", ".venv/", ".ci/", "dist/")
    assert not [
        name
        for name in names
        if name.startswith(leftovers) or name.endswith((".pyc", ".nes", ".state"))
    ]


def test_the_version_comes_from_one_place(built: Path) -> None:
    project = tomllib.loads(PROJECT.read_text())
    assert "version" in project["project"]["dynamic"]
    assert next(built.glob("*.whl")).name.split("-")[1] == element_rl.__version__
    assert "\nversion" not in (CHECKOUT / "CITATION.cff").read_text()
    done = installed(built, str(built / "site" / "bin" / "element"), "--version")
    assert done.stdout.strip() == f"element-rl {element_rl.__version__}"


def test_the_pythons_that_are_named_are_those_that_are_taken() -> None:
    project = tomllib.loads(PROJECT.read_text())["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert named == ["3.11", "3.12", "3.13"]
    taken = SpecifierSet(project["requires-python"])
    assert all(version in taken for version in named)
    assert "3.10" not in taken


def test_the_check_of_a_release_says_what_it_did_not_try_and_what_failed() -> None:
    """`make wheel-check`; whether the wheel works elsewhere is for a release to find out."""
    pytest.importorskip(
        "hatchling", reason="the wheel is built by hatchling: install the extra dev"
    )
    check = [sys.executable, str(CHECKOUT / "tests" / "support" / "check_wheel.py")]
    done = subprocess.run([*check, "python9.99"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    name, *rest = done.stdout.splitlines()
    assert name == f"element_rl-{element_rl.__version__}-py3-none-any.whl"
    assert rest == ["python9.99: NOT TRIED, there is none here"]
    done = subprocess.run([*check, "false"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "false: FAILED\nfalse -m venv " in done.stdout


def test_mujoco_with_another_physics_is_not_taken() -> None:
    """Margins of geoms are added up since 3.5 (docs/design.md)."""
    requirements = map(Requirement, tomllib.loads(PROJECT.read_text())["project"]["dependencies"])
    (asked,) = [
        requirement.specifier for requirement in requirements if requirement.name == "mujoco"
    ]
    pins = dict(
        line.split("==")
        for line in (CHECKOUT / "constraints.txt").read_text().split()
        if line.count("==") == 1
    )
    assert pins["mujoco"] in asked
    assert "3.4.0" not in asked


def test_the_installed_command_needs_no_extra(built: Path) -> None:
    """The package can be imported, every command explains itself, and a run leaves its folder."""
    script = (
        "import sys, element_rl\n"
        "assert 'jax' not in sys.modules, 'importing the package must stay cheap'\n"
        "print(element_rl.__file__)\n"
        "from element_rl.cli import COMMANDS, main\n"
        "for command in COMMANDS:\n"
        "    try:\n"
        "        main([command, '--help'])\n"
        "    except SystemExit as exit_:\n"
        "        assert exit_.code == 0, command\n"
        f"sys.exit(main({TINY_RUN!r}))\n"
    )
    done = installed(built, sys.executable, "-c", script)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.splitlines()[0]).is_relative_to(built / "site")
    assert all(f"usage: element {command} " in done.stdout for command in COMMANDS)
    assert {"config.json", "metrics.csv", "summary.json"} <= {
        path.name for path in (built / "run").iterdir()
    }


@pytest.mark.parametrize("arguments", [["--help"], ["plot", "--help"]], ids=" ".join)
def test_output_that_nobody_reads_is_no_error(built: Path, arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)  # as `element --help | head -1` leaves it
    done = installed(built, str(built / "site" / "bin" / "element"), *arguments, stdout=writer)
    os.close(writer)
    assert done.returncode == NOBODY_READS
    assert done.stderr == ""


def test_the_citation_names_the_software_and_the_paper() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML reads CITATION.cff")
    citation = yaml.safe_load((CHECKOUT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= citation.keys()
    paper = citation["preferred-citation"]
    assert paper["title"] == "ELEMENT: Episodic and Lifelong Exploration via Maximum Entropy"
    assert [author["family-names"] for author in paper["authors"]] == [
        "Li",
        "Yu",
        "Liu",
        "Príncipe",
    ]
    assert paper["type"] == "article"
