"""What a long command tells of itself while it works, to whoever watches, and how it ends early."""

from collections.abc import Callable
from typing import NamedTuple

COMPILING = "compiling"  # what a run says it is doing while its first programs are made
# in the folder of a run that begins with policies of another: which they are (`finetune`)
TRANSFER = "transfer.json"


class Progress(NamedTuple):
    """What a watcher of the run is told after every chunk."""

    step: int
    steps: int
    steps_per_second: float  # summed over the agents
    latest: dict[str, float]  # the last logged metrics, averaged over the agents
    agents: int = 1  # that train side by side, each of which has made `step` steps
    doing: str = ""  # what keeps the run from stepping just now, such as compiling
    note: str = ""  # a line that a person should read once, as soon as it is known


Watcher = Callable[[Progress], None]


class Interrupted(Exception):  # noqa: N818 (not an error: the run was asked to stop and can be resumed)
    """The run stopped early, at a checkpoint."""

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped at step {step}")
        self.step = step


def random_policy_watcher(watch: Watcher) -> Watcher:
    """Tells the watcher of a run that is done how far the random policy beside it is."""

    def tell(progress: Progress) -> None:
        doing = f"random policy, to compare with: {progress.step / progress.steps:.0%}"
        watch(Progress(progress.steps, progress.steps, 0.0, {}, doing=doing))

    return tell
