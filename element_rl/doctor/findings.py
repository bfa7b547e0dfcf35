"""What a check has found."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

CHECK_FAILED = 1  # exit code


@dataclass(frozen=True)
class Finding:
    """One sentence on one thing that was checked, and what to do about it."""

    name: str
    status: Literal["ok", "warn", "fail"]
    sentence: str
    advice: str = ""  # what to do; empty where all is well
    # the numbers behind the sentence, for programs
    values: dict[str, Any] = field(default_factory=dict)


def checked(
    name: str,
    well: bool,
    sentence: str,
    advice: str,
    values: dict[str, Any],
    status: Literal["warn", "fail"] = "warn",
) -> Finding:
    """A finding with advice, and of this status, only where things are not well."""
    return Finding(name, "ok" if well else status, sentence, "" if well else advice, values)


def exit_code(findings: Iterable[Finding]) -> int:
    """0 when nothing failed; warnings do not count."""
    return CHECK_FAILED if any(finding.status == "fail" for finding in findings) else 0
