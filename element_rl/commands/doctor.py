"""The command `element doctor`."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console

from element_rl.commands.options import read_options
from element_rl.doctor.findings import Finding, exit_code
from element_rl.doctor.report import as_json, print_verdict, printed
from element_rl.storage.settings import named_values

if TYPE_CHECKING:  # loading JAX takes longer than saying what the options are
    from element_rl.doctor.trial import Trial


@dataclass(frozen=True)
class Doctor:
    """Check the installation, and whether a bonus works on an environment, or worked in a run.
    Exits with 1 if a check failed."""

    # Gymnasium environment to try the bonus on, or the folder of a run.
    target: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="[ENV|RUN]")]] = "PointMaze"
    # Bonus to try: element, element-paper, rnd, ngu, re3, rise, apt, icm, e3b, disagreement, ride,
    # noveld, pseudo-counts, etd, rle, metra, FILE.py:FUNCTION, or a sum of weighted products of
    # these, such as 'element + 0.5*rnd'.
    reward: str = "element"
    # Settings of the bonus as NAME=VALUE pairs, e.g. lifelong_weight=1.0. (default: none)
    reward_options: tuple[str, ...] = ()
    # Settings of the environment as NAME=VALUE pairs. (default: none)
    env_options: tuple[str, ...] = ()
    # Where the agent is: entries of info, or columns of the observation, e.g. 0 1.
    # (default: known for robots and mazes, otherwise unknown)
    position: tuple[str, ...] = ()
    # Random actions to try the bonus on; 0 checks the installation only.
    steps: int = 2000
    # Seed of the random actions and of the bonus.
    seed: int = 0
    # Build a learner of Stable-Baselines3 with the bonus too, and check that it learns from it.
    sb3: bool = False
    # Print the findings as JSON, for programs.
    json: bool = False
    # Folder where runs would go: is there space, and may it be written?
    out: Path = Path("runs")


def main(arguments: list[str]) -> int:
    """Check, print, and return the exit code."""
    args = read_options(Doctor, arguments, "element doctor")
    console = Console(quiet=args.json, file=sys.stdout)
    findings = [
        finding for title, checks in _parts(args) for finding in printed(console, title, checks)
    ]
    print_verdict(console, findings)
    if args.json:
        print(as_json(findings))
    return exit_code(findings)


def _parts(args: Doctor) -> Iterator[tuple[str, Iterator[Finding]]]:
    """Titles, and the checks under them. Mistakes of the user come to light before anything is
    printed."""
    from element_rl.doctor.installation import check_installation

    if Path(args.target).is_dir():
        from element_rl.doctor.run_folder import check_run, opened_run

        yield f"Run {args.target}", check_run(*opened_run(Path(args.target)))
        return
    if len(Path(args.target).parts) > 1 and Path(args.target).parent.is_dir():
        raise ValueError(f"There is no run folder {args.target}, and no environment of that name.")
    if args.steps == 0:
        yield "Installation", check_installation(args.out)
        return
    from element_rl.doctor.trial import Trial, TrialSettings
    from element_rl.envs.names import registered_name

    settings = TrialSettings(
        args.target,
        args.reward,
        args.steps,
        args.seed,
        _position(args.position),
        named_values("--env-options", args.env_options, "terminate_when_unhealthy=false"),
        named_values("--reward-options", args.reward_options, "lifelong_weight=1.0", dotted=True),
    )
    trial = Trial(settings)
    yield "Installation", check_installation(args.out)
    yield (
        f"Reward {args.reward} on {registered_name(args.target)}, {args.steps:,} random steps",
        _check_bonus(trial, args.sb3),
    )


def _check_bonus(trial: "Trial", with_sb3: bool) -> Iterator[Finding]:
    from element_rl.doctor.cost import check_cost, check_recall
    from element_rl.doctor.explorer import check_entropy, check_explore
    from element_rl.doctor.learning import check_learner
    from element_rl.doctor.sb3_learning import check_sb3
    from element_rl.doctor.terms import check_terms
    from element_rl.doctor.trial import judge

    taken = check_explore(trial.settings)
    yield taken
    try:
        trial.collect()
        judgement = judge(trial)
    except ValueError as error:
        advice = (
            "Mend the environment: no learner can use what is not finite."
            if "finite" in str(error)
            else ""
        )
        yield Finding("observations", "fail", str(error), advice)
        return
    except Exception as error:  # whatever an environment or a reward of the user's may raise
        sentence = f"The trial ended with {type(error).__name__}: {' '.join(str(error).split())}"
        advice = "Mend the environment or the reward; a run would end so too."
        yield Finding("trial", "fail", sentence, advice)
        return
    finally:
        trial.close()
    failed = False
    for finding in check_terms(trial, judgement):
        failed |= finding.status == "fail"
        yield finding
    if failed:
        return
    if entropy := check_entropy(trial, explored=taken.status == "ok"):
        yield entropy
    yield check_cost(trial, judgement)
    if recall := check_recall(trial):
        yield recall
    yield check_learner(trial)
    if with_sb3:
        yield check_sb3(trial.settings)


def _position(names: tuple[str, ...]) -> tuple[str, ...] | tuple[int, ...] | None:
    if not names:
        return None
    return tuple(int(name) for name in names) if all(name.isdigit() for name in names) else names
