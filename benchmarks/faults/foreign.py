"""Environments and rewards of a user's own that raise, or show and return something wrong."""

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

from benchmarks.faults.trying import Attempt, attempt

WORLD = """
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

FAULTS = {
    "raises": lambda: {}["no such key"],
    "none": lambda: None,
    "text": lambda: "text",
    "nan": lambda: np.full(2, np.nan, np.float32),
    "wide": lambda: np.zeros(7, np.float32),
}

class World(gymnasium.Env):
    observation_space, action_space = Box(-1, 1, (2,), np.float32), Box(-1, 1, (1,), np.float32)
    def __init__(self, where="", fault=""):
        self.where, self.fault = where, fault
        self.at("constructor")
    def at(self, where, usual=None):
        return FAULTS[self.fault]() if where == self.where else usual
    def seen(self):
        space = self.observation_space
        return self.np_random.integers(0, 2, space.shape).astype(space.dtype)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.at("reset", self.seen()), self.at("info", {})
    def step(self, action):
        return self.at("step", self.seen()), self.at("reward", 0.0), False, False, {}
    def close(self):
        self.at("close")

class Shown(World):
    observation_space, action_space = Box(0, 255, (84, 84), np.uint8), Discrete(2)

gymnasium.register("World-v0", World, max_episode_steps=20)
gymnasium.register("Shown-v0", Shown, max_episode_steps=20)
"""
REWARD = """
from dataclasses import dataclass
import jax.numpy as jnp

def raising():
    raise KeyError("what is missing")

FAULTS = {
    "raises": raising,
    "none": lambda: None,
    "text": lambda: "text",
    "nan": lambda: jnp.full(8, jnp.nan),
    "wide": lambda: jnp.zeros((3, 7)),
}

@dataclass(frozen=True)
class Own:
    where: str = ""
    fault: str = ""
    name = "own"
    def at(self, where, usual):
        return FAULTS[self.fault]() if where == self.where else usual
    @property
    def metric_names(self): return self.at("metric_names", ())
    def note_shapes(self): return self.at("note_shapes", {"seen": ()})
    def init(self, key, spec): return self.at("init", jnp.zeros(()))
    def observe(self, state, episode):
        return self.at("observe", (state, {"seen": self.at("notes", episode.state[:, 0])}))
    def update(self, state, batch, key): return self.at("update", (state, {}))
    def reward(self, state, batch): return self.at("reward", batch.notes["seen"])
    def reward_terms(self, state, batch):
        return self.at("reward_terms", {"reward_lifelong": batch.notes["seen"]})

def make(where="", fault=""):
    return Own(where, fault)
"""
PLACES = ("constructor", "reset", "info", "step", "reward", "close")
FAULTS = ("raises", "none", "text", "nan", "wide")
EXPLORE = (
    *("explore", "their_world:World-v0", "--steps", "80", "--chunk-steps", "20"),
    *("--sac.hidden-sizes", "8", "--sac.batch-size", "8", "--sac.learn-start", "20"),
    *("--replay-size", "200", "--workers", "0", "--no-figures", "--random-seeds", "0"),
)
COMMANDS = {
    "explore": EXPLORE,
    "on-policy": (
        *("on-policy", "their_world:Shown-v0", "--steps", "40", "--workers", "0"),
        *("--no-figures", "--random-seeds", "0", "--state-dim", "3", "--reward", "extrinsic"),
        *("--a3c.channels", "2", "2", "--a3c.hidden-size", "8", "--a3c.local-steps", "10"),
    ),
}


REWARD_PLACES = (
    *("metric_names", "note_shapes", "init", "observe", "notes", "update", "reward"),
    "reward_terms",
)


def foreign_cases(number: int) -> Iterator[tuple[str, str, str]]:
    """Command, place and fault, of environments."""
    every = itertools.product(FAULTS, PLACES, COMMANDS)
    yield from (
        (command, where, fault) for fault, where, command in itertools.islice(every, number)
    )


def reward_cases(number: int) -> Iterator[tuple[str, str, str]]:
    """The same of rewards, off-policy."""
    every = itertools.product(FAULTS, REWARD_PLACES)
    yield from (("own reward", where, fault) for fault, where in itertools.islice(every, number))


def try_foreign(command: str, where: str, fault: str, place: Path, seconds: float) -> Attempt:
    place.mkdir(parents=True)
    (place / "their_world.py").write_text(WORLD)
    (place / "their_reward.py").write_text(REWARD)
    option = "--reward-options" if command == "own reward" else "--env-options"
    options = (option, f"where={where}", f"fault={fault}")
    own = (*EXPLORE, "--reward", "their_reward.py:make")
    try:
        return attempt((*COMMANDS.get(command, own), *options), place, seconds)
    finally:
        shutil.rmtree(place, ignore_errors=True)
