"""What a dataset is collected from: a run's agents and environment, its checkpoints, and its
replay."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import safetensors
from jaxtyping import Array, Bool, Float, Float32, Shaped

from element_rl.acting.policies import ActionScale
from element_rl.datasets.collecting.parts import Rows, Share
from element_rl.datasets.collecting.screen_source import ScreenSource
from element_rl.encoders.state import StateEncoder, make_state_encoder
from element_rl.entropy import evaluation_entropy
from element_rl.envs.make import make_env
from element_rl.envs.names import with_package
from element_rl.envs.robots import HEALTH_OPTION, can_fall
from element_rl.envs.spec import EnvSpec
from element_rl.replay.stored import stored_episodes
from element_rl.runs.folder import POLICY, RESUME_ARRAYS, RunError, RunFolder
from element_rl.storage.files import read_manifest, verify
from element_rl.training.off_policy.config import ExploreConfig, described, parsed_options

# states; episodes are padded to powers of two, so that few shapes are compiled
SHORTEST_PADDING = 32
ADVICE = "restore it from a copy, or collect from another run"


@dataclass(frozen=True)
class Source:
    """A run, and the environment that its dataset is of."""

    run: RunFolder
    reward: str
    seeds: tuple[int, ...]  # of the agents
    env_options: Mapping[str, Any]
    spec: EnvSpec
    env_spec: gymnasium.envs.registration.EnvSpec  # as Gymnasium made it
    observation_space: gymnasium.spaces.Box
    action_space: gymnasium.spaces.Box

    def refuse_policy(self, policy: Mapping[str, np.ndarray]) -> None:
        layers = len(policy) // 2
        seen, acts = policy["weight_0"].shape[1], policy[f"bias_{layers - 1}"].shape[1] // 2
        if (seen, acts) != (self.spec.observation_dim, self.spec.action_dim):
            raise ValueError(
                f"The policies of {self.run.path} observe {seen} and act with {acts} numbers, but "
                f"{self.spec.name} with "
                f"{dict(self.env_options)} has {self.spec.observation_dim} and "
                f"{self.spec.action_dim}: leave out the "
                "--env-options that change this."
            )


def source_of(run: RunFolder, env_options: tuple[str, ...], of_the_task: bool) -> Source:
    """The run with its own environment; `of_the_task`: where falling ends an episode as the task
    has it."""
    settings = run.config["settings"]
    pairs = tuple(settings["env_options"])
    if of_the_task and can_fall(settings["env"]) and settings["reward"] != "extrinsic":
        pairs = tuple(
            pair for pair in pairs if pair.replace(" ", "").lower() != f"{HEALTH_OPTION}=false"
        )
    options = parsed_options(ExploreConfig(settings["env"], env_options=(*pairs, *env_options)))
    env = make_env(settings["env"], **options)
    try:
        assert env.spec is not None  # make_env goes through the registry
        return Source(
            run=run,
            reward=settings["reward"],
            seeds=tuple(settings["seed"] + index for index in range(settings["seeds"])),
            env_options=options,
            spec=described(settings, options),
            env_spec=with_package(env.spec, settings["env"]),
            observation_space=_recorded_space(env.observation_space),
            action_space=env.action_space,
        )
    finally:
        env.close()


def shares_of(
    source: Source | ScreenSource, steps: int, checkpoints: tuple[int, ...]
) -> list[Share]:
    """The steps divided evenly over the checkpoints, the remainder over the last ones."""
    if not source.run.checkpoint_steps():
        raise RunError(
            f"The run {source.run.path} has no checkpoint yet: let it train until its first one."
        )
    chosen = sorted(set(checkpoints)) or source.run.planned_checkpoints()
    if steps < len(chosen):
        raise ValueError(
            f"--steps must be at least 1 for each of the {len(chosen)} checkpoints, got {steps}."
        )
    least, remainder = divmod(steps, len(chosen))
    shares = []
    for number, checkpoint in enumerate(chosen):
        policy = source.run.load_policy(checkpoint)
        source.refuse_policy(policy)
        share = least + (number >= len(chosen) - remainder)
        # Networks for screens are large: they are read when they are needed, one checkpoint after
        # the other.
        unneeded = source.reward == "random" or isinstance(source, ScreenSource)
        shares.append(Share(checkpoint, share, None if unneeded else policy))
    return shares


def fingerprint(run: RunFolder, checkpoint: int) -> str:
    """What a checkpoint's policy is known by, from its manifest."""
    folder = run.checkpoints_path / f"step_{checkpoint:09d}"
    return str(read_manifest(folder, ADVICE)["files"][POLICY]["sha256"])[:16]


def observations_of(source: Source, rows: Rows) -> Shaped[np.ndarray, "R O"]:
    """Observations as the dataset's space has them."""
    return rows["observation"].astype(source.observation_space.dtype, copy=False)


def actions_of(source: Source, action: Float32[np.ndarray, "R A"]) -> Shaped[np.ndarray, "R A"]:
    """Actions in the environment's units: to the bit what it was stepped with (`acting.actors`)."""
    spec = source.spec
    return ActionScale(spec.action_low, spec.action_high, source.action_space.dtype)(action)


def replayed_episodes(source: Source, steps: int | None) -> Iterator[tuple[int, Rows]]:
    """Agent and rows of every complete episode in the replay of the newest checkpoint, one agent
    after the other.

    `steps`: the newest episodes of each agent, up to so many steps. The episode that was running is
    left out, and so is one whose beginning the ring has overwritten. Where an episode ended without
    terminating, time ran out.
    """
    latest = source.run.latest_checkpoint()
    if latest is None:
        raise RunError(
            f"The run {source.run.path} has no checkpoint yet: let it train until its first one."
        )
    folder = source.run.checkpoints_path / f"step_{latest:09d}" / "resume"
    verify(folder, RESUME_ARRAYS, ADVICE)
    any_episode = False
    with safetensors.safe_open(folder / RESUME_ARRAYS, framework="np") as file:
        if "ledger/running_start" not in file.keys():  # noqa: SIM118 (it is no mapping)
            raise RunError(
                f"The run {source.run.path} keeps no replay: collect with its policies, without "
                "--from-replay."
            )
        running = file.get_tensor("ledger/running_start")
        num_envs = source.run.config.get("settings", {}).get("envs_per_agent", 1)
        for agent in range(len(source.seeds)):
            lengths = [
                file.get_tensor(f"ledger/lengths_{agent * num_envs + env}")
                for env in range(num_envs)
            ]
            if not any(map(len, lengths)):
                continue
            # One agent at a time: a replay of many agents need not fit into memory twice.
            names = ("observation", "action", "extrinsic_reward", "terminated", "state")
            stored = {name: file.get_slice(f"learner/replay/{name}")[agent] for name in names}
            for start, length in stored_episodes(running, lengths, agent, num_envs, steps):
                any_episode = True
                yield agent, _replayed(source, stored, start, length, num_envs)
    if not any_episode:
        raise RunError(
            f"The replay of the run {source.run.path} holds no complete episode: train it for "
            "longer."
        )


def _replayed(source: Source, stored: Rows, start: int, length: int, num_envs: int) -> Rows:
    slots = (start + num_envs * np.arange(length + 1)) % len(stored["observation"])
    rows = {name: np.array(array[slots]) for name, array in stored.items()}
    # A state is embedding ⊕ position ⊕ orientation (`encoders.state`), so the positions are there
    # to the bit.
    after = source.spec.position_dim + source.spec.orientation_dim
    state = rows.pop("state")
    rows["position"] = state[
        :, state.shape[1] - after : state.shape[1] - source.spec.orientation_dim
    ]
    rows["truncated"] = np.arange(length + 1) == (
        -1 if rows["terminated"][length - 1] else length - 1
    )
    return rows


class EpisodeEntropies:
    """The paper's evaluation entropy of an episode: matrix-based, of order 1.001, in bits, on the
    agent's own encoder."""

    def __init__(self, source: Source) -> None:
        spec = source.spec
        self._longest = spec.max_episode_steps
        self._encoders = [
            make_state_encoder(seed, spec.observation_dim, spec.orientation_slice)
            for seed in source.seeds
        ]

    def __call__(self, agent: int, rows: Rows) -> float:
        """Of the states s_1 … s_T."""
        count = len(rows["observation"]) - 1
        size = min(max(1 << (count - 1).bit_length(), SHORTEST_PADDING), max(self._longest, count))
        padding = ((0, max(size - count, 0)), (0, 0))
        padded = [
            jnp.asarray(np.pad(rows[name][1:], padding)) for name in ("observation", "position")
        ]
        return float(_entropy(self._encoders[agent], *padded, jnp.arange(len(padded[0])) < count))


@eqx.filter_jit
def _entropy(
    encoder: StateEncoder,
    observations: Float[Array, "N O"],
    positions: Float[Array, "N C"],
    mask: Bool[Array, " N"],
) -> Float[Array, ""]:
    return evaluation_entropy(jax.vmap(encoder)(observations, positions), mask)


def _recorded_space(space: gymnasium.Space) -> gymnasium.spaces.Box:
    """The space of what is recorded: the environment's own, in float32 where it has more digits
    than the policies see."""
    assert isinstance(space, gymnasium.spaces.Box)  # `describe` refuses others
    if space.dtype == np.float32 or not np.issubdtype(space.dtype, np.floating):
        return space
    with np.errstate(over="ignore"):
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    return gymnasium.spaces.Box(low, high, space.shape, np.float32)
