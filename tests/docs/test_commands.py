"""Every `element …` of README and docs is a command that exists, with options that exist; none of
them is run."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tyro
from support.documents import DOCUMENTS, ROOT, commands, name_of, spans

import element_rl.commands.training
from element_rl import cli

STANDING_FOR = {
    "ENV": "Ant-v5",
    "NAME": "rnd",
    "N": "1",
    "I/N": "1/2",
}  # what a page writes for "your own"
ELSEWHERE = {"--help", "--version"}
MAKEFILE = ROOT / "Makefile"
WITH_COMMANDS = [document for document in DOCUMENTS if commands(document)]


class Parsed(BaseException):
    pass


@pytest.fixture
def parse(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], None]:
    """The command line's own parsing, and nothing after it."""
    understand = tyro.cli

    def only_parse(*arguments: Any, **options: Any) -> None:
        understand(*arguments, **options)
        raise Parsed

    monkeypatch.setattr(tyro, "cli", only_parse)
    # The runs of the pages are not there to take settings from.
    monkeypatch.setattr(element_rl.commands.training, "resumed_folder", lambda arguments: None)

    def parse(arguments: list[str]) -> None:
        try:
            cli.main(arguments)
        except Parsed:
            return
        pytest.fail(f"element {' '.join(arguments)} was answered by an error")

    return parse


@pytest.mark.parametrize("document", WITH_COMMANDS, ids=name_of)
def test_commands_are_understood(
    document: Path, parse: Callable[[list[str]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in {tuple(arguments): arguments for arguments in commands(document)}.values():
        assert arguments[0] in cli.COMMANDS, (
            f"{name_of(document)}: there is no command element {arguments[0]}"
        )
        if len(arguments) > 1 and "--help" not in arguments:  # not only named
            try:
                parse(_complete(arguments))
            except SystemExit:
                pytest.fail(
                    f"{name_of(document)}: element {' '.join(arguments)}\n{capsys.readouterr().err}"
                )


def test_the_first_look_is_understood_and_filmed(parse: Callable[[list[str]], None]) -> None:
    """`make explore` is the first that a new user sees."""
    (recipe,) = re.findall(r"^explore:.*\n\t\S*/element (.*)$", MAKEFILE.read_text(), flags=re.M)
    arguments = shlex.split(recipe)
    parse(arguments)
    assert arguments[:2] == ["explore", "Hopper-v5"]
    assert {"--video", "--out"} <= set(arguments)
    assert "--no-figures" not in arguments
    steps = arguments[arguments.index("--steps") + 1]
    assert f"{int(steps):,} steps" in " ".join((ROOT / "README.md").read_text().split())


def test_options_are_those_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    for name in cli.COMMANDS:
        with pytest.raises(SystemExit):
            cli.main([name, "--help"])
    known = set(re.findall(r"--[a-z][\w.-]*", capsys.readouterr().out)) | ELSEWHERE
    families = {
        option.split(".")[0] for option in known if "." in option
    }  # `--sac.…` is all of them
    for document in DOCUMENTS:
        for span in spans(document):
            for option in (
                re.findall(r"(?:^|\s)(--[a-z][\w.-]*)", span)
                if span.startswith(("--", "element "))
                else ()
            ):
                named = option in known or option.removesuffix("NAME").rstrip(".") in families
                assert named, f"{name_of(document)} has {option}, in {span!r}"


def _complete(arguments: list[str]) -> list[str]:
    """A command with something for each place that the page leaves open."""
    name, *rest = (
        STANDING_FOR.get(argument, argument)
        for argument in arguments
        if argument not in ("…", "...")
    )
    needs_none = name in ("maze", "mario", "doctor")
    if not needs_none and (not rest or rest[0].startswith("--")):
        rest = ["Ant-v5", *rest]
    return [name, *rest]
