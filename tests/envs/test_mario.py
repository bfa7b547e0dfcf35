"""Super Mario Bros: the game as it is played, what is told of it, and what is said where something
is missing.

Most of these tests need the extra `mario` (`make test` installs it where it can) and are skipped
without it.
"""

import gc
import hashlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from benchmarks import bench_mario
from element_rl.envs import mario, mario_emulator
from element_rl.envs.make import describe, make_env
from element_rl.envs.spec import coverage_cell

INSTALLED = all(
    importlib.util.find_spec(name) for name in ("stable_retro", mario_emulator.ROM_PACKAGE)
)
needs_mario = pytest.mark.skipif(
    not INSTALLED,
    reason="NOT TESTED: Super Mario Bros is not installed; pip install -e '.[mario]' "
    "(docs/mario.md)",
)
NONE, RIGHT, RIGHT_JUMP, RIGHT_FAST, RIGHT_FAST_JUMP, JUMP, LEFT, DOWN = 0, 1, 2, 3, 4, 5, 6, 10
# (action, steps) from the very beginning of the level, without idle frames; found by a random
# search with save states.
FIRST_THIRD = [(3, 7), (5, 10), (1, 12), (4, 3), (1, 12), (4, 6), (3, 12), (2, 9), (1, 4), (4, 11)]
TO_THE_BONUS_ROOM = [*FIRST_THIRD, (4, 8), (0, 3), (4, 6), (DOWN, 3)]
TO_THE_FLAG = [
    *FIRST_THIRD,
    *[
        (2, 9),
        (1, 4),
        (4, 12),
        (3, 12),
        (4, 8),
        (4, 12),
        (3, 4),
        (4, 7),
        (6, 10),
        (4, 4),
        (4, 12),
        (3, 10),
        (4, 9),
    ],
    *[
        (6, 2),
        (3, 11),
        (4, 9),
        (3, 11),
        (4, 12),
        (0, 5),
        (4, 8),
        (6, 2),
        (4, 6),
        (4, 5),
        (4, 10),
        (3, 5),
        (4, 8),
    ],
    *[(3, 4), (2, 5), (6, 5), (4, 12), (0, 10), (4, 6)],
]


@pytest.fixture
def env() -> Iterator[gymnasium.Env]:
    env = mario.make(noop_max=0)
    yield env
    env.close()


@needs_mario
@pytest.mark.parametrize("actions", [12, 16])
def test_gymnasium_environment(actions: int) -> None:
    made = gymnasium.make(
        "SuperMarioBros-1-1", actions=actions, render_mode="rgb_array", disable_env_checker=True
    )
    check_env(made.unwrapped)  # makes more of them in this process, to render them
    made.close()


@needs_mario
def test_described() -> None:
    spec = describe("mario")
    assert spec == describe("SuperMarioBros-1-1")
    assert (spec.name, spec.frame_shape, spec.max_episode_steps) == (
        "SuperMarioBros-1-1",
        (84, 84),
        1000,
    )
    assert (spec.actions, spec.action_names[4]) == (12, "right+A+B")
    wide = describe("mario", actions=16)
    assert (wide.actions, len(set(wide.action_names))) == (16, 16)
    assert wide.action_names[:5] == ("none", "A", "B", "A+B", "right")
    assert spec.coverage_cells == (100, 200)


def test_buttons_of_an_action() -> None:
    pressed = mario.button_mask("right+A+B")
    assert [name for name, held in zip(mario_emulator.BUTTONS, pressed, strict=True) if held] == [
        "B",
        "RIGHT",
        "A",
    ]
    assert not mario.button_mask("none").any()
    assert len({mario.button_mask(name).tobytes() for name in mario.ACTION_SETS[16]}) == 16
    assert len({mario.button_mask(name).tobytes() for name in mario.ACTION_SETS[12]}) == 12


@needs_mario
def test_walking_right(env: gymnasium.Env) -> None:
    first, before = env.reset(seed=0)
    assert env.observation_space.contains(first)
    assert (before["x"], before["y"], before["area"], before["life"], before["clock"]) == (
        40,
        79,
        1,
        2,
        400,
    )
    assert tuple(before["position"]) == (40, 79)
    total = 0.0
    for _ in range(15):
        frame, reward, terminated, truncated, info = env.step(RIGHT)
        total += reward
        assert not terminated
        assert not truncated
    assert info["x"] > 80
    assert total == info["x"] - 40 - (400 - info["clock"])
    assert not np.array_equal(frame, first)
    highest = max(env.step(JUMP)[-1]["y"] for _ in range(8))
    assert highest > 79 + 40


@needs_mario
def test_death_and_truncation_are_told_apart() -> None:
    env = mario.make(noop_max=0, reward_scale=0.1)
    env.reset(seed=0)
    terminated = truncated = False
    while not (terminated or truncated):
        _, reward, terminated, truncated, info = env.step(RIGHT)  # into the first enemy
    assert (terminated, truncated, info["died"], info["flag"]) == (True, False, True, False)
    assert -1.7 < reward < -0.5  # a tenth of what was walked in this step, less the penalty
    env.close()
    env = mario.make(max_episode_steps=3)
    env.reset(seed=0)
    assert [env.step(NONE)[2:4] for _ in range(3)] == [
        (False, False),
        (False, False),
        (False, True),
    ]
    env.close()


@needs_mario
def test_three_lives() -> None:
    env = mario.make(end_on_life_loss=False)
    _, info = env.reset(seed=0)
    lives, places = [info["life"]], []
    terminated = truncated = False
    while not (terminated or truncated):
        _, reward, terminated, truncated, info = env.step(RIGHT)
        if info["died"]:
            lives.append(info["life"])
            places.append(info["x"])
            # going back to the beginning is no progress, forwards or backwards
            assert -18 <= reward <= -5
    assert lives[:3] == [2, 1, 0]
    assert len(lives) == 4
    assert places[:2] == [40, 40]
    assert not truncated
    env.close()


@needs_mario
def test_bonus_room_has_a_map_of_its_own(env: gymnasium.Env) -> None:
    spec = describe("mario")
    env.reset(seed=0)
    infos = [(reward, info) for _, reward, _, _, info in played(env, TO_THE_BONUS_ROOM)]
    inside = infos[-1][1]
    assert (inside["area"], inside["x"]) == (2, 24)
    assert tuple(inside["position"]) == (24, inside["y"] + 300)
    assert coverage_cell(spec, inside["position"]) % 200 >= 100
    assert all(
        coverage_cell(spec, info["position"]) % 200 < 100 for _, info in infos if info["area"] == 1
    )
    assert all(abs(reward) <= 12 for reward, _ in infos)  # through the pipe is no step back
    outside = list(played(env, [(RIGHT_FAST_JUMP, 9), (RIGHT, 3)] * 5))  # and out at its other end
    assert outside[-1][-1]["area"] == 1
    assert outside[-1][-1]["x"] > 2600
    assert all(abs(reward) <= 12 for _, reward, *_ in outside)


@needs_mario
def test_flag(env: gymnasium.Env) -> None:
    env.reset(seed=0)
    *_, last = played(env, TO_THE_FLAG)
    _, reward, terminated, truncated, info = last
    assert (terminated, truncated, info["flag"], info["died"]) == (True, False, True, False)
    assert 3150 <= info["x"] < 3200
    assert reward > -5


@needs_mario
def test_same_seed_same_frames() -> None:
    """In one game after another, in two that take turns on the emulator, and in a new one after all
    are closed."""
    one, two = mario.make(), mario.make()
    expected = digest(one, seed=5)
    assert digest(one, seed=5) == expected
    assert digest(one, seed=6) != expected
    frames = [[one.reset(seed=5)[0]], [two.reset(seed=5)[0]]]
    for action in random_actions(5):
        for kept, game in zip(frames, (one, two), strict=True):
            kept.append(game.step(action)[0])
    assert all(hashlib.sha256(np.stack(kept).tobytes()).hexdigest() == expected for kept in frames)
    one.close()
    two.close()
    again = mario.make()
    assert digest(again, seed=5) == expected
    again.close()


@needs_mario
def test_idle_frames_come_from_the_seed() -> None:
    env = mario.make(noop_max=30)
    frames = [env.reset(seed=seed)[0].tobytes() for seed in range(40)]
    clocks = [env.reset(seed=seed)[1]["clock"] for seed in range(40)]
    assert 1 < len(set(frames)) <= 31
    assert set(clocks) <= {398, 399, 400}
    env.close()


SIX_EMULATORS = """
import hashlib, sys
import numpy as np
from element_rl.envs import mario
env = mario.make()
frames = [env.reset(seed=5)[0]]
for action in np.random.default_rng(5).integers(0, 12, 60):
    frames.append(env.step(action)[0])
print(hashlib.sha256(np.stack(frames).tobytes()).hexdigest(), "jax" in sys.modules)
"""


@needs_mario
def test_six_emulators_in_six_processes() -> None:
    command = [sys.executable, "-c", SIX_EMULATORS]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    answers = [process.communicate(timeout=120)[0].split() for process in processes]
    env = mario.make()
    assert answers == [[digest(env, seed=5), "False"]] * 6
    env.close()


LEAK = """
import resource
import numpy as np
from element_rl.envs import mario
env, rng = mario.make(noop_max=1), np.random.default_rng(0)
def play(steps, resets):
    for _ in range(resets):
        env.reset()
        for _ in range(steps // resets):
            if env.step(rng.integers(12))[2]: break
play(200, 100)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
play(1000, 10)
play(1000, 1000)
for _ in range(20):
    env.close()
    env = mario.make(noop_max=1)
    env.reset()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@needs_mario
@pytest.mark.skipif(sys.platform != "linux", reason="the unit of ru_maxrss differs")
def test_a_thousand_steps_and_resets_leak_nothing() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", LEAK], capture_output=True, text=True, check=True, timeout=120
    )
    assert int(answer.stdout) < 4_000  # kB at the peak; a frame is 161 kB, a save state 13 kB


@needs_mario
def test_an_emulator_of_someone_else() -> None:
    import stable_retro

    gc.collect()  # no game of an earlier test is left
    other = stable_retro.RetroEmulator(str(mario_emulator.find_rom()))
    env = mario.make()
    with pytest.raises(
        ValueError, match="Another emulator of stable-retro is open in this process"
    ):
        env.reset(seed=0)
    del other
    gc.collect()
    env.reset(seed=0)
    env.close()
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset before step"):
        env.unwrapped.step(0)


@needs_mario
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"actions": 14}, r"no set of 14 actions .*; use actions=12 \(none, right, .* or 16 \("),
        ({"frame_skip": 0}, "frame_skip must be a whole number of at least 1, not 0"),
        ({"noop_max": -1}, "noop_max must be a whole number of at least 0, not -1"),
        ({"max_episode_steps": 0}, "max_episode_steps must be a whole number from 1"),
        ({"lives": 3}, r"cannot be made: .*unexpected keyword argument 'lives'"),
        (
            {"rom": "nowhere.nes"},
            r"There is no ROM at .*nowhere\.nes; give the path of a file as the option rom",
        ),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_env("mario", **options)


@needs_mario
def test_rom_given_by_the_user(tmp_path: Path) -> None:
    rom = mario_emulator.find_rom()
    copy = tmp_path / "mine.nes"
    copy.write_bytes(rom.read_bytes())
    env, other = mario.make(rom=str(copy)), mario.make()
    assert digest(env, seed=1) == digest(other, seed=1)  # one emulator plays both
    env.close()
    other.close()
    wrong = tmp_path / "wrong.nes"
    wrong.write_bytes(b"NES")
    told = hashlib.sha256(b"NES").hexdigest()
    with pytest.raises(
        ValueError, match=f"sha256 is {told}, expected is {mario_emulator.ROM_SHA256}"
    ):
        mario.make(rom=wrong)
    nameless = tmp_path / "mario.bin"
    nameless.write_bytes(rom.read_bytes())
    with pytest.raises(ValueError, match=r"must have a name that ends in \.nes"):
        mario.make(rom=nameless)


def test_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "stable_retro" else object()
    )
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(sys, "version_info", (3, 12, 0))
    with pytest.raises(
        ValueError, match=r"needs the extra mario: pip install 'element-rl\[mario\]'"
    ):
        mario.make()
    monkeypatch.setattr(sys, "version_info", (3, 15, 0))
    with pytest.raises(
        ValueError, match=r"published for Python 3\.10 to 3\.14 .* this is Python 3\.15 on linux"
    ):
        mario.make()
    monkeypatch.setattr(sys, "version_info", (3, 12, 0))
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(
        ValueError,
        match=r"this is Python 3\.12 on linux \(aarch64\)\. Use one of those, or .*Rooms-v0",
    ):
        mario.make()
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: object() if name == "stable_retro" else None
    )
    with pytest.raises(
        ValueError, match=r"There is no ROM .*pip install --no-deps gym-super-mario-bros==7\.4\.0"
    ):
        mario.make()


@needs_mario
def test_benchmark() -> None:
    settings = bench_mario.Settings(steps=20, repetitions=2)
    environment, emulator = bench_mario.one_emulator(settings)
    assert len(environment.clock) == len(emulator.processor) == 2
    together = {2: bench_mario.several_emulators(settings, 2)}
    text = bench_mario.render(
        settings, environment, emulator, bench_mario.rooms_rates(settings), together
    )
    assert "| 2 at once, a process each |" in text


def played(env: gymnasium.Env, script: list[tuple[int, int]]) -> Iterator[Any]:
    for action, steps in script:
        for _ in range(steps):
            outcome = env.step(action)
            yield outcome
            if outcome[2] or outcome[3]:
                return


def random_actions(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 12, 60)


def digest(env: gymnasium.Env, seed: int) -> str:
    """Of the frames of 60 random steps."""
    frames = [env.reset(seed=seed)[0], *(env.step(action)[0] for action in random_actions(5))]
    return hashlib.sha256(np.stack(frames).tobytes()).hexdigest()
