"""How fast is Super Mario Bros? Environment steps per second of one emulator on one core, and of
six in processes of their own.

    environment   `envs.mario.make`: buttons, frame skip, frames of 84 × 84 grey pixels, memory
                  read, reward, resets
    emulator      the same buttons and as many frames of the same episodes, on the bare emulator:
                  nothing is looked at

Both play random actions, in turns, in one process that is bound to one core; a row gives the median
of the repetitions, with the lowest and the highest. Rates per second of processor time hardly
depend on what else the machine does; those of the clock do. Six emulators play at the same time,
each in a process, as the workers of A3C do; their rate is the sum, by the clock.

    python -m benchmarks.bench_mario
"""

import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import tyro

from benchmarks.one_core import on_one_core
from benchmarks.tables import (
    ROOT,
    markdown_table,
    provenance,
    replace_table,
    significant,
    source_line,
)
from element_rl.envs import mario, mario_emulator
from element_rl.envs.make import make_env

PAGE = ROOT / "docs" / "mario.md"


@dataclass(frozen=True)
class Settings:
    """What to measure."""

    steps: int = 2_000  # of each repetition
    repetitions: int = 7
    frame_skip: int = 4
    emulators: tuple[int, ...] = (1, 2, 6)  # at the same time
    page: bool = True  # write the table into docs/mario.md
    note: str = ""  # a sentence below the table


@dataclass(frozen=True)
class Rates:
    """Environment steps per second, one entry per repetition."""

    processor: tuple[float, ...]  # per second of processor time
    clock: tuple[float, ...]


def main(settings: Settings) -> str:
    """Measure, print and keep the table."""
    environment, emulator = on_one_core(one_emulator, settings)
    rooms = on_one_core(rooms_rates, settings)
    together = {count: several_emulators(settings, count) for count in settings.emulators}
    text = render(settings, environment, emulator, rooms, together)
    print(text)
    if settings.page:
        replace_table(PAGE, "speed", text)
    return text


def one_emulator(settings: Settings) -> tuple[Rates, Rates]:
    """The environment and the bare emulator by turns, so that both meet the same machine."""
    env = mario.make(frame_skip=settings.frame_skip)
    rom = mario_emulator.find_rom()
    env.reset(seed=0)
    game = mario_emulator.Game(rom)  # on the same console
    measured: dict[str, list[tuple[float, float]]] = {"environment": [], "emulator": []}
    play_environment(env, settings.steps // 4, seed=0)  # warm
    for seed in range(settings.repetitions):
        measured["environment"].append(
            timed(settings.steps, play_environment, env, settings.steps, seed)
        )
        measured["emulator"].append(timed(settings.steps, play_bare, game, settings, seed))
    return rates(measured["environment"]), rates(measured["emulator"])


def rooms_rates(settings: Settings) -> Rates:
    """The environment that needs no ROM."""
    env = make_env("Rooms-v0")
    steps = 10 * settings.steps
    return rates(
        [timed(steps, play_environment, env, steps, seed) for seed in range(settings.repetitions)]
    )


def several_emulators(settings: Settings, count: int) -> list[float]:
    """Steps per second by the clock of so many processes together."""
    context = multiprocessing.get_context("spawn")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    barrier = context.Barrier(count + 1)
    processes = [
        context.Process(target=_worker, args=(settings, seed, barrier)) for seed in range(count)
    ]
    for process in processes:
        process.start()
    totals = []
    barrier.wait()  # all are warm
    for _ in range(settings.repetitions):
        began = time.perf_counter()
        barrier.wait()
        totals.append(count * settings.steps / (time.perf_counter() - began))
    for process in processes:
        process.join()
    return totals


def _worker(settings: Settings, seed: int, barrier: Any) -> None:
    env = mario.make(frame_skip=settings.frame_skip)
    play_environment(env, settings.steps // 4, seed)
    barrier.wait()
    for repetition in range(settings.repetitions):
        play_environment(env, settings.steps, 1_000 * repetition + seed)
        barrier.wait()


def play_environment(env: gymnasium.Env, steps: int, seed: int) -> None:
    """Random actions; episodes that end begin anew."""
    env.reset(seed=seed)
    for action in np.random.default_rng(seed).integers(0, env.action_space.n, steps):
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()


def play_bare(game: mario_emulator.Game, settings: Settings, seed: int) -> None:
    """As many frames with buttons drawn alike. After a death come the game's black screens."""
    masks = [mario.button_mask(name) for name in mario.ACTION_SETS[12]]
    game.restart()
    for action in np.random.default_rng(seed).integers(0, len(masks), settings.steps):
        for _ in range(settings.frame_skip):
            game.play_frame(masks[action])


def timed(steps: int, play: Callable[..., None], *arguments: Any) -> tuple[float, float]:
    """Steps per second of processor time, and by the clock."""
    processor, clock = time.process_time(), time.perf_counter()
    play(*arguments)
    return steps / (time.process_time() - processor), steps / (time.perf_counter() - clock)


def rates(measured: Sequence[tuple[float, float]]) -> Rates:
    processor, clock = zip(*measured, strict=True)
    return Rates(processor, clock)


def render(
    settings: Settings,
    environment: Rates,
    emulator: Rates,
    rooms: Rates,
    together: dict[int, list[float]],
) -> str:
    """The table and where it comes from."""
    header = ["env-steps/s", "per second of processor time", "by the clock"]
    rows = [
        [
            f"one emulator, one core, frame skip {settings.frame_skip}",
            spread(environment.processor),
            spread(environment.clock),
        ],
        [
            "the bare emulator in the same process",
            spread(emulator.processor),
            spread(emulator.clock),
        ],
        *(
            [f"{count} at once, a process each", "", spread(totals)]
            for count, totals in together.items()
        ),
        ["Rooms-v0, one core", spread(rooms.processor), spread(rooms.clock)],
    ]
    share = statistics.median(environment.processor) / statistics.median(emulator.processor)
    lines = [
        markdown_table(header, rows),
        "",
        f"Median of {settings.repetitions} repetitions of {settings.steps:,} steps "
        f"(lowest–highest). The environment keeps {share:.0%} of the bare emulator's speed. "
        f"{source_line(provenance(('stable-retro', 'gymnasium', 'numpy', 'pillow')))}",
    ]
    return "\n".join([*lines, *([settings.note] if settings.note else [])])


def spread(values: Sequence[float]) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{significant(middle)} ({significant(low)}–{significant(high)})"


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
