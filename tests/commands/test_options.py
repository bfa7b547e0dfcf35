"""Values on the command line: counts as people write them, and what may be left out."""

from dataclasses import dataclass
from typing import Literal

import pytest

from element_rl.commands.options import read_options, whole_number


@dataclass(frozen=True)
class Settings:
    """Of some command."""

    # Steps of each agent.
    steps: int = 1
    # Widths of the layers.
    sizes: tuple[int, ...] = (8,)
    # Steps between two checkpoints. (default: a tenth of --steps)
    every: int | None = None
    # Lowest and highest score. (default: unknown)
    bounds: tuple[float, float] | None = None
    # Which estimator. (default: renyi)
    estimator: Literal["renyi", "knn"] | None = None


def read(*arguments: str, default: Settings | None = None) -> Settings:
    return read_options(Settings, arguments, "command", default)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ("-3", -3),
        ("1_000", 1000),
        ("1e6", 1_000_000),
        ("2.5e5", 250_000),
        ("1E3", 1000),
        ("4.0", 4),
    ],
)
def test_counts(text: str, number: int) -> None:
    assert whole_number(text) == number
    assert type(whole_number(text)) is int
    assert read("--steps", text).steps == number
    assert read("--every", text).every == number
    assert read("--sizes", "2", text).sizes == (2, number)


@pytest.mark.parametrize("text", ["1.5", "1e-3", "many", "inf", "nan", "1e400", ""])
@pytest.mark.parametrize("option", ["--steps", "--every"])
def test_what_is_no_count(option: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        read(option, text)
    assert exit_.value.code == 2
    error = " ".join(capsys.readouterr().err.split())
    assert f"{option}: a whole number is needed, such as 250000 or 2.5e5, got {text!r}." in error


def test_what_may_be_left_out() -> None:
    assert read() == Settings()
    given = Settings(every=3, bounds=(0.0, 1.5), estimator="knn")
    assert read("--every", "3", "--bounds", "0", "1.5", "--estimator", "knn") == given
    assert read(default=given) == given
    assert (
        read("--every", "None", "--bounds", "None", "--estimator", "None", default=given)
        == Settings()
    )


def test_what_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, sentence in (
        (["--bounds", "1"], "--bounds: 2 values are needed, got 1."),
        (["--estimator", "kde"], "invalid choice 'kde'"),
    ):
        with pytest.raises(SystemExit):
            read(*arguments)
        assert sentence in capsys.readouterr().err


def test_help_tells_the_defaults_of_a_resumed_run(capsys: pytest.CaptureFixture[str]) -> None:
    for default, told in (
        (None, "(default: a tenth of --steps)"),
        (Settings(every=3), "(default: 3)"),
    ):
        with pytest.raises(SystemExit):
            read("--help", default=default)
        assert f"Steps between two checkpoints. {told}" in " ".join(capsys.readouterr().out.split())
