"""Every option of every command has a sentence in `--help`, and the default that will be used."""

import re
from dataclasses import dataclass
from typing import Annotated

import pytest
import tyro

from element_rl.cli import COMMANDS, main
from element_rl.commands.options import read_options
from element_rl.commands.study import MAZE, MODULES
from element_rl.rewards import INTRINSIC_NAMES, TRAINING_NAMES

# How a text begins that goes on from the option's name, which a newcomer cannot complete.
FRAGMENTS = re.compile(
    r"(of|for|per|in|to|at|as|by|from|with|whose|instead|its|their|and|also)\b", re.IGNORECASE
)
FILE = "FILE.py:FUNCTION"
WIDTH = 110  # columns; beyond 130 tyro may print two tables side by side


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))


def help_of(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit_:
        main([command, "--help"])
    assert exit_.value.code == 0
    return capsys.readouterr().out


def explained(text: str) -> dict[str, str]:
    """Options and positional arguments of a help text, each with all that is said of it.

    Tables are framed, or, where the terminal has no such characters, indented.
    """
    found: dict[str, str] = {}
    name, positional = None, False
    for line in text.splitlines():
        entry = line[2:].removesuffix("│").rstrip()
        if line.startswith(("╭─ ", " ")) and line[1:2].strip():
            # A title. In plain characters the rule below it too.
            name, positional = None, "positional" in line or (positional and "---" in line)
        elif not line.startswith(("│ ", "  ")) or not entry.strip("-─"):
            name = None
        elif not entry.startswith(" "):
            name, _, entry = entry.partition("  ")
            if not positional and not name.startswith("-"):
                name = None  # a group of options is described
            else:
                assert name not in found, name
                found[name] = ""
        if name is not None:
            found[name] = f"{found[name]} {entry.strip()}".strip()
    return found


def faults(options: dict[str, str]) -> list[str]:
    """What a newcomer would stumble over."""
    wrong = []
    texts = [re.sub(r"\s*\((default: .*|required[^()]*)\)$", "", text) for text in options.values()]
    for number, (name, text) in enumerate(options.items()):
        if name == "-h, --help":
            continue  # tyro's own
        sentence = texts[number]
        if not sentence:
            wrong.append(f"{name} says nothing")
        elif FRAGMENTS.match(sentence) or sentence[0].islower():
            wrong.append(f"{name} begins in the middle of a sentence: {sentence}")
        elif sentence == texts[number - 1]:
            # tyro gives a comment to all fields below it that have none.
            wrong.append(f"{name} says what the option before it says: {sentence}")
        if "{None" in name or "None)" in text or sentence == text or "(default: )" in text:
            wrong.append(f"{name} does not tell its default: {text}")
    return wrong


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_explained(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = explained(help_of(command, capsys))
    assert len(options) > 1
    assert faults(options) == []


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("explore", TRAINING_NAMES),
        ("on-policy", TRAINING_NAMES),
        ("mario", TRAINING_NAMES),
        ("doctor", INTRINSIC_NAMES),
    ],
)
def test_all_rewards_that_a_command_takes_are_listed(
    command: str, names: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    environment = {"explore": ["Hopper-v5"], "on-policy": ["Rooms-v0"]}.get(command, [])
    text = explained(help_of(command, capsys))["--reward STR"]
    listed = [word for word in re.findall(r"[\w.:-]+\w", text) if word in (*TRAINING_NAMES, FILE)]
    assert list(dict.fromkeys(listed)) == [*names, FILE]
    assert main([command, *environment, "--reward", "foo"]) == 2
    error = capsys.readouterr().err
    assert (
        f"no reward called 'foo'; choose one of {', '.join(names)}, or {FILE} of your own." in error
    )


@pytest.mark.parametrize("command", ["explore", "on-policy", "mario"])
def test_environments_of_other_packages_are_named(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "package:Env-v0" in explained(help_of(command, capsys))["ENV"]


@pytest.mark.parametrize(
    ("command", "argument", "hint"),
    [
        ("explore", "ENV", "(required, unless --resume is given)"),
        ("on-policy", "ENV", "(required, unless --resume is given)"),
        ("offline", "DATASET ...", "(required, unless --resume is given)"),
        ("pretrain-encoder", "ENV", "(required, unless --resume is given)"),
        ("mario", "ENV", "(default: SuperMarioBros-1-1)"),
    ],
)
def test_what_is_named_first_is_in_a_run_that_is_resumed(
    command: str, argument: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explained(help_of(command, capsys))[argument].endswith(f". {hint}")
    if command != "mario":
        assert main([command, "--steps", "10"]) == 2
        assert re.fullmatch(r"element: Name .*\.\n", capsys.readouterr().err)


def test_every_study_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of("study", capsys)
    assert "goes on where it stopped.\n" in text  # not broken as in the code, nor indented
    for name in (*MODULES, MAZE):
        assert re.search(rf"^ +{name} +[A-Z].*", text, re.MULTILINE), name


@pytest.mark.parametrize("learner", ["sac", "td3", "a3c"])
def test_a_fine_tuning_takes_the_learner_from_the_run(
    learner: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = explained(help_of("finetune", capsys))
    texts = [text for name, text in options.items() if name.startswith(f"--{learner}.")]
    assert len(texts) > 5
    assert all(text.endswith("(default: as in the run)") for text in texts)


@pytest.mark.parametrize("columns", range(60, 120, 10))
def test_numbers_are_not_broken(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """tyro breaks lines at commas, also at that of 10,000."""
    monkeypatch.setenv("COLUMNS", str(columns))
    options = explained(help_of("on-policy", capsys))
    assert options["--log-every INT"].endswith("from 500 to 10000)")


@dataclass(frozen=True)
class Badly:
    run: tyro.conf.Positional[Annotated[int, tyro.conf.arg(metavar="RUN")]]
    # Weight of the novelty. (default: 0.5)
    weight: float | None = None
    named: tuple[int, ...] = ()  # of the agents
    # Steps per agent.
    steps: int = 3
    seeds: int | None = None
    # Whether nothing is printed.
    quiet: bool = False

    silent: bool = False


def test_what_is_badly_explained_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_options(Badly, ["--help"], "badly")
    options = explained(capsys.readouterr().out)
    assert options["--weight FLOAT"] == "Weight of the novelty. (default: 0.5)"
    assert [fault.partition(":")[0] for fault in faults(options)] == [
        "RUN begins in the middle of a sentence",
        "--named [INT [INT ...]] begins in the middle of a sentence",
        "--named [INT [INT ...]] does not tell its default",
        "--seeds INT says what the option before it says",
        "--seeds INT does not tell its default",
        "--silent, --no-silent says nothing",
    ]
