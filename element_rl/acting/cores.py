"""How many processor cores a process may use, and how many of them are meant for it.

Cells of a study that run side by side have an equal share each: the environment variable
`ELEMENT_RL_CORES` tells them so.
"""

import os

SHARE = "ELEMENT_RL_CORES"


def usable_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def own_cores() -> int:
    """Cores to plan processes for: its share where it has been given one, else all it may use."""
    share = os.environ.get(SHARE, "")
    return min(max(int(share), 1), usable_cores()) if share.isdigit() else usable_cores()
