"""What the settings of all loops have in common."""

from collections.abc import Sequence
from typing import Any

from element_rl.storage.capacity import refuse_beyond_memory

# the least that each of so many takes: an agent has an environment, a network and a map, and an
# episode waits in a queue with its seeds
KEPT_BYTES = {"seeds": 2**16, "random_seeds": 2**16, "episodes": 2**9}


def check_numbers(config: Any, positive: Sequence[str], not_negative: Sequence[str]) -> None:
    """Refuses numbers below 1, or below 0, and more agents than the machine can hold; None is a
    setting that is left open."""
    for names, least, wanted in (
        (positive, 1, "be at least 1"),
        (not_negative, 0, "not be negative"),
    ):
        for name in names:
            value = getattr(config, name)
            if value is not None and value < least:
                raise ValueError(f"--{name.replace('_', '-')} must {wanted}, got {value}.")
    refuse_too_many(config)


def refuse_too_many(config: Any) -> None:
    """Refuses more agents, or episodes at once, than the machine can hold."""
    for name, each in KEPT_BYTES.items():
        count = getattr(config, name, None) or 0
        refuse_beyond_memory(f"--{name.replace('_', '-')} {count}", count * each)


def agent_seeds(config: Any) -> list[int]:
    """One seed per agent, counting up from the first."""
    return [config.seed + index for index in range(config.seeds)]


def usual_log_every(steps: int) -> int:
    """Steps between two lines of metrics, for a run of this length."""
    return min(10_000, max(steps // 100, 500))
