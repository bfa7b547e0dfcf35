"""The settings of ELEMENT, the paper's for each robot, and how those left open are decided."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args, get_origin

from element_rl.entropy import SMALLEST_RADIUS
from element_rl.memory.auto import LARGEST_EXACT_ON_CPU
from element_rl.memory.graph import GraphConfig
from element_rl.memory.spaced import check_settings as check_spaced

MemoryKind = Literal["auto", "exact", "graph", "hnsw", "spaced"]


@dataclass(frozen=True)
class ElementConfig:
    """The paper's parameters; the defaults are those for Ant and Humanoid (see `PRESETS`)."""

    lifelong_weight: float = 0.5  # β; 0 leaves the episodic reward alone
    episodic_weight: float = 1.0  # 0 leaves the lifelong reward alone
    estimator: Literal["renyi", "kde", "knn"] = "renyi"  # of the episodic entropy
    renyi_order: float = 3.0  # α of the Rényi estimator
    bandwidth: float = 1.0  # σ of the Rényi and KDE estimators
    estimator_neighbours: int = 5  # k of the kNN estimator
    knn_floor: float = SMALLEST_RADIUS  # states closer than this are as far to the kNN estimator
    num_neighbours: int = 3  # k of the lifelong memory
    update_interval: int = 500_000  # U, steps between the beginnings of two update windows
    update_steps: int = 50_000  # T_u, steps of an update window
    # U at the beginning, for a run whose length is not known: U and T_u double whenever 16 U have
    # passed, up to those above
    first_interval: int | None = None
    # in the windows only (Algorithm 3), or all the time, from step 0 on
    remember: Literal["windows", "always"] = "windows"
    # whether states of a state's own episode count as its neighbours; it never counts itself
    own_episode: Literal["in", "out"] = "in"
    memory: MemoryKind = "auto"  # see element_rl.memory
    memory_capacity: int = 8_192  # states that a spaced memory keeps at most
    # δ of a spaced memory at first; None: the median step of the first episode that enters
    memory_spacing: float | None = None
    graph: GraphConfig = field(default_factory=GraphConfig)  # used by the graph memory only
    lifelong_estimator: Literal["knn", "kde", "renyi2"] = "knn"  # which of Proposition 2's rewards
    lifelong_bandwidth: float = 1.0  # σ of the kernel in kde and renyi2
    tolerance: float = 1e-2  # ε of Proposition 2's condition
    # minimum and maximum over the batch, or over all so far; or mean and deviation over the batch;
    # or quantiles over the recent batches
    normalisation: Literal["batch", "running", "standard", "robust"] = "batch"
    length_weighted: bool = False  # weigh episodes as the appendix does when their lengths differ
    # what a state is paid of its episode's entropy: the same as all others of the episode, the log
    # share that itself adds to it, or the first variation of the entropy there
    credit: Literal["episode", "state", "variation"] = "episode"
    running: bool = False  # episodes are noted while they run, too

    def __post_init__(self) -> None:
        if (
            self.lifelong_weight < 0
            or self.episodic_weight < 0
            or self.lifelong_weight + self.episodic_weight == 0
        ):
            weights = f"beta {self.lifelong_weight} and episodic weight {self.episodic_weight}"
            raise ValueError(
                f"The weights of ELEMENT must not be negative nor both 0, got {weights}."
            )
        if not 0 < self.update_steps <= self.update_interval:
            window = f"T_u {self.update_steps} and U {self.update_interval}"
            raise ValueError(
                f"The update window must be shorter than the interval between two, got {window}."
            )
        if self.first_interval is not None and not 0 < self.first_interval <= self.update_interval:
            raise ValueError(
                f"first_interval must be within 1 and U {self.update_interval}, got "
                f"{self.first_interval}."
            )
        for name, allowed in _ALLOWED.items():
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} must be {' or '.join(allowed)}, got {getattr(self, name)!r}."
                )
        for name in (
            "bandwidth",
            "lifelong_bandwidth",
            "tolerance",
            "num_neighbours",
            "estimator_neighbours",
            "knn_floor",
        ):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}.")
        check_spaced(self.memory_capacity, self.memory_spacing)

    @cached_property
    def windows(self) -> list[tuple[int, int]]:
        """U and T_u, in the order in which they are used; only one of each where the run's length
        is known."""
        if self.first_interval is None:
            return [(self.update_interval, self.update_steps)]
        steps = max(self.first_interval * self.update_steps // self.update_interval, 1)
        doublings = (self.update_interval // self.first_interval).bit_length()
        return [(self.first_interval * 2**number, steps * 2**number) for number in range(doublings)]


_ALLOWED: Mapping[str, tuple[str, ...]] = {
    name: get_args(annotation)
    for name, annotation in ElementConfig.__annotations__.items()
    if get_origin(annotation) is Literal
}
FIRST_INTERVAL = 1_000  # steps before the first window, where nobody says how long the run will be
# then eight windows follow, each twice as long and twice as far apart
INTERVALS_BEFORE_DOUBLING = 16
USUAL_STEPS = 1_000_000  # the length that sizes are for, where nobody says it
# for learners from a replay; the paper has 1, which does not tell heights of a robot apart
KDE_BANDWIDTH = 0.1
PRESETS: Mapping[str, ElementConfig] = {
    "Hopper": ElementConfig(estimator="kde", graph=GraphConfig(search_steps=20, restarts=20)),
    "Walker2d": ElementConfig(estimator="knn", graph=GraphConfig(search_steps=10, restarts=5)),
    "Ant": ElementConfig(graph=GraphConfig(search_steps=20, restarts=10)),
    "Humanoid": ElementConfig(graph=GraphConfig(search_steps=20, restarts=10)),
}


# Robots on which single states are paid by their nearest neighbours instead of the paper's
# estimator: it covers more cells in the mean (docs/results/estimators.md).
BY_NEIGHBOURS = ("Ant", "HalfCheetah")


def preset(env: str | None) -> ElementConfig:
    """The paper's settings for a robot, by the name of its environment; those of Ant for others."""
    return PRESETS.get(_robot(env), ElementConfig())


def usual_estimator(env: str, credit: str) -> Literal["renyi", "kde", "knn"]:
    """How `element explore` estimates the entropy of an episode, unless it is told: the paper's
    estimator where all states of an episode are paid alike."""
    by_neighbours = credit != "episode" and _robot(env) in BY_NEIGHBOURS
    return "knn" if by_neighbours else preset(env).estimator


def _robot(env: str | None) -> str:
    """Ant of mujoco:Ant-v5."""
    return (env or "").rpartition(":")[2].split("-v")[0]


def replay_defaults(estimator: str) -> dict[str, Any]:
    """Options that a learner from a replay gets unless it asks for others: beyond the paper
    (docs/results/credit.md)."""
    return {"credit": "state"} | ({"bandwidth": KDE_BANDWIDTH} if estimator == "kde" else {})


def update_window(
    total_steps: int | None,
    interval: int | None = None,
    steps: int | None = None,
    first: int | None = None,
) -> dict[str, int]:
    """U and T_u for a run of this length: the paper's, but U no more than a tenth of the run, and
    T_u a tenth of U.

    Where nobody knows the length, U is between a sixteenth and an eighth of the steps so far.
    """
    if total_steps is None and interval is None and steps is None:
        paper = ElementConfig()
        windows = {"update_interval": paper.update_interval, "update_steps": paper.update_steps}
        return windows | {"first_interval": first or FIRST_INTERVAL}
    total_steps = USUAL_STEPS if total_steps is None else total_steps
    interval = interval or min(ElementConfig.update_interval, max(total_steps // 10, 2))
    return {"update_interval": interval, "update_steps": steps or max(interval // 10, 1)}


def in_update_window(step: Any, config: ElementConfig) -> Any:
    """0 < t mod U < T_u, from t = U on (Algorithm 3); of NumPy arrays and Python numbers too. All
    steps are, where everything is remembered."""
    if config.remember == "always":
        return step >= 0
    (interval, steps), *longer = config.windows
    doublings = sum(step >= INTERVALS_BEFORE_DOUBLING * (following // 2) for following, _ in longer)
    interval, steps = interval * 2**doublings, steps * 2**doublings
    phase = step % interval
    return (phase > 0) & (phase < steps) & (step >= interval)


def states_remembered(steps: int, config: ElementConfig) -> int:
    """How many states of one agent enter the memory within its first `steps` steps, or are offered
    to a spaced one."""
    if config.remember == "always":
        return steps
    windows, number, begin = config.windows, 0, 0
    for interval, window in windows:
        end = (
            steps
            if (interval, window) == windows[-1]
            else min(INTERVALS_BEFORE_DOUBLING * interval, steps)
        )
        number += _within(end, interval, window) - _within(begin, interval, window)
        begin = end
    return number


def _within(steps: int, interval: int, window: int) -> int:
    """How many of the first steps are in windows of this kind."""
    whole, rest = divmod(max(steps - interval, 0), interval)
    return whole * (window - 1) + max(min(rest, window) - 1, 0)


def resolved_memory(
    config: ElementConfig, total_steps: int, on_cpu: bool
) -> Literal["exact", "graph", "hnsw", "spaced"]:
    """Which memory `auto` means for a run of this length: exact on accelerators and for few states,
    else hnsw."""
    if config.memory != "auto":
        return config.memory
    return (
        "hnsw"
        if on_cpu and states_remembered(total_steps, config) > LARGEST_EXACT_ON_CPU
        else "exact"
    )
