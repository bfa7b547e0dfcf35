"""`element explore`: train agents that explore, then draw, film and sum up what they did."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from element_rl.commands import on_policy
from element_rl.commands.bars import Bar, bar_or_lines
from element_rl.commands.handing_over import for_images, for_on_policy
from element_rl.commands.next_steps import say_next_steps
from element_rl.commands.summaries import summary_table
from element_rl.commands.training import TrainingCommand, counted, default_folder, run_training
from element_rl.envs.make import ImagesShownError
from element_rl.envs.robots import can_fall
from element_rl.envs.spec import EnvSpec
from element_rl.evaluate import evaluate, film
from element_rl.rewards.expression import names_in
from element_rl.runs.folder import RunError, RunFolder
from element_rl.tracking.settings import NOT_TRACKED, Tracking
from element_rl.training.off_policy.config import ELEMENTS, ExploreConfig
from element_rl.training.off_policy.explore import explore
from element_rl.training.off_policy.launch import create_run, reopen_run
from element_rl.training.off_policy.resolving import Resolved, map_note, resolved

FILM_FRAMES = 250  # of the film at the end of a run: eight seconds, whatever the episode's length
EPISODES_DRAWN = 2  # per checkpoint and seed, in the figure of trajectories at the end of a run
FALLS = {  # what is said of falls that do other than in the paper
    "ignore": "Falling does not end an episode (--falls end: the paper's form; reset).",
    "reset": "A fall resets the robot, and the return goes on in the next episode.",
}
ELEMENTS_OWN = (  # options that no other reward has
    *("--beta", "--episodic-weight", "--memory", "--estimator", "--bandwidth"),
    *("--lifelong-estimator", "--credit", "--normalisation", "--remember", "--own-episode"),
    *("--length-weighted", "--no-length-weighted"),
)
LATE = 0.1  # of a run: where learning begins later than that, it is said
BAR = Bar(
    "steps",
    (
        "cells {coverage:,.0f}",
        "entropy {episodic_entropy:.2f}",
        "length {episode_length:.0f}",
        "memory {memory_size:,.0f}",
    ),
)


@dataclass(frozen=True)
class Explore:
    """Train agents that explore, without any task reward (Algorithm 3 of the ELEMENT paper)."""

    config: Annotated[ExploreConfig, tyro.conf.arg(name="")]
    # Folder of the run. (default: runs/ENV-REWARD-SEED)
    out: Path | None = None
    # Folder of a run to continue; settings are taken from it. (default: a new run begins)
    resume: Path | None = None
    # Act with the checkpoint policies and draw figures at the end.
    figures: bool = True
    # Film one episode of the last policy beside a random policy at the end, where the environment
    # can be rendered.
    video: bool = False
    # Trackers that the run is sent to.
    tracking: Annotated[Tracking, tyro.conf.arg(name="")] = NOT_TRACKED


def main(arguments: list[str]) -> int:
    handed_over = for_on_policy(arguments)
    if handed_over is None:
        try:
            return run_training(COMMAND, arguments, "element explore")
        except ImagesShownError:
            handed_over = for_images(arguments)
    return on_policy.main(handed_over)


def _refuse_elements_own(config: ExploreConfig, arguments: Sequence[str]) -> None:
    """Settings of ELEMENT, asked for where another reward would ignore them. (Unasked they stand in
    every run's.)"""
    given = (argument.partition("=")[0].replace("_", "-") for argument in arguments)
    unused = next((option for option in given if option in ELEMENTS_OWN), None)
    if "element" not in names_in(config.reward) and unused:
        raise ValueError(
            f"{unused} is a setting of ELEMENT and means nothing to the reward {config.reward!r}: "
            "leave it out."
        )


def _title(given: ExploreConfig, settings: Resolved) -> list[str]:
    config = settings.config
    lines = [map_note(given, settings.spec)] if map_note(given, settings.spec) else []
    lines.append(
        f"[bold]{config.env}[/bold], reward {config.reward}, {config.steps:,} steps × "
        f"{counted(config.seeds, 'seed')}"
    )
    if given.agent is None and settings.spec.chooses:
        lines.append(
            f"DQN learns: an action is one of {settings.spec.actions} choices (--agent ppo: PPO)."
        )
    if settings.spec.left_out:
        lines.append(left_out_note(settings.spec))
    if config.last_step != config.steps:
        lines.append(
            f"The run ends at step {config.last_step:,}, with a whole chunk: it goes in chunks of "
            f"{config.chunk_steps} (--chunk-steps)."
        )
    if late := _late_beginning(config, settings.spec):
        lines.append(late)
    if not set(names_in(config.reward)).isdisjoint(ELEMENTS):
        lines.append(_windows(config))
    if config.inputs == "state":
        lines.append(
            f"{config.reward} sees ELEMENT's state, with the position, where its paper has "
            "observations (--inputs own: these)."
        )
    if config.state_units == "calibrated":
        lines.append(
            "States are calibrated: their units come from random steps before the run "
            "(--state-units raw: those of the environment)."
        )
    if config.falls in FALLS and can_fall(config.env):
        lines.append(FALLS[config.falls])
    return lines


def _late_beginning(config: ExploreConfig, spec: EnvSpec) -> str:
    """Where agents with several environments act at random for much of the run; empty elsewhere."""
    begin = config.num_envs * spec.max_episode_steps
    waits = config.learn_from == "ended" and config.reward != "random"
    several = config.num_envs > 1 and config.physics == "host"
    if not (waits and several and begin > LATE * config.steps):
        return ""
    return (
        f"Learning begins at step {begin:,}, when the first episodes of {config.num_envs} "
        "environments are over (--learn-from running: with what they have done so far)."
    )


def left_out_note(spec: EnvSpec) -> str:
    """What of an environment's observations agents do not see."""
    kind = "one image" if spec.sees_frames else "numbers"
    return f"Of the observations, {', '.join(spec.left_out)} is left out: agents see {kind}."


def _windows(config: ExploreConfig) -> str:
    """When states are remembered."""
    if config.remember == "always":
        return "The lifelong memory takes in every step (--remember always)."
    interval, window = config.update_interval or 0, config.update_steps or 0
    if config.steps <= interval:
        return (
            "The lifelong memory stays empty: its first window opens at step "
            f"{interval:,} (--update-interval)."
        )
    return (
        f"The lifelong memory takes in {window:,} steps every {interval:,} (--update-interval, "
        "--update-steps)."
    )


def _draw(settings: Resolved, run: RunFolder) -> list[Path]:
    from element_rl.plots import plot_run  # loads matplotlib

    if settings.config.reward != "random":
        with bar_or_lines(Console(), Bar("episodes"), name="for figures") as watch:
            evaluate(run, episodes=EPISODES_DRAWN, watch=watch, spec=settings.spec)
    return plot_run([run], say=lambda text: None)


def _film(settings: Resolved, run: RunFolder) -> None:
    """A film beside a random policy at the end of a run; where none can be rendered a sentence says
    so, and the run is done all the same."""
    if settings.config.reward == "random":
        return
    try:
        with bar_or_lines(Console(), Bar("frames"), name="film") as watch:
            every = max(settings.spec.max_episode_steps // FILM_FRAMES, 1)
            path = film(run, watch=watch, spec=settings.spec, every=every, beside_random=True)
    except RunError as error:
        print(error)
    else:
        print(f"Video: {path}")


def _say_last(run: RunFolder) -> None:
    print(f"Run: {run.path}")
    say_next_steps(run)


COMMAND = TrainingCommand(
    kind="explore",
    options=Explore,
    config=ExploreConfig,
    create=create_run,
    reopen=reopen_run,
    train=explore,
    default_folder=lambda settings: default_folder(
        settings.config.env, settings.config.reward, settings.config.seed
    ),
    title=_title,
    bars=BAR,
    draw=_draw,
    show=lambda run, summary: summary_table(summary),
    film=_film,
    say_last=_say_last,
    resolve=resolved,
    last_step=lambda settings: settings.config.last_step,
    check=_refuse_elements_own,
)
