"""MiniGrid's rooms in one layout for all episodes, so that a map of their tiles can be read.

    pip install element-rl minigrid
    python examples/same_rooms.py --steps 20000

The file registers `SameRooms-v0`, so `element explore same_rooms:SameRooms-v0`, typed in its
folder, explores it with any reward and any agent.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import gymnasium
import minigrid  # noqa: F401  registers its environments

from element_rl.cli import main as element

NAME = "SameRooms-v0"
LAYOUT = 0  # seed of every episode: another number, other rooms


class SameLayout(gymnasium.Wrapper):
    """Every episode begins as the one of the seed `LAYOUT`."""

    def reset(self, **_: Any) -> Any:
        return self.env.reset(seed=LAYOUT)


def same_rooms(rooms: str = "MiniGrid-MultiRoom-N6-v0", **options: Any) -> gymnasium.Env:
    """The environment `rooms`, whose layout is otherwise drawn anew in each episode."""
    return SameLayout(gymnasium.make(rooms, **options))


gymnasium.register(NAME, entry_point="same_rooms:same_rooms", max_episode_steps=120)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", default="20000", help="environment steps of each agent")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))  # processes that act import this file, too
    command = f"explore same_rooms:{NAME} --steps {options.steps} --no-figures --random-seeds 1"
    return element([*command.split(), "--workers", "0", "--out", "runs/same-rooms"])


if __name__ == "__main__":
    main()
