"""The episodes in the replay of a run's newest checkpoint."""

from collections.abc import Iterator

import numpy as np
import safetensors

from element_rl.datasets.collecting.agents import ADVICE, TrainedAgents
from element_rl.datasets.collecting.chunks import EpisodeRows
from element_rl.encoders.state import make_state_encoder
from element_rl.envs.spec import EnvSpec
from element_rl.replay.stored import stored_episodes
from element_rl.runs.folder import RESUME_ARRAYS, RunError
from element_rl.storage.files import verify
from element_rl.training.off_policy.warm_up import stored_warm_up


def replayed_episodes(
    agents: TrainedAgents, steps: int | None
) -> Iterator[tuple[int, EpisodeRows]]:
    """Agent and rows of every complete episode, one agent after the other.

    `steps`: the newest episodes of each agent, up to so many steps. The episode that was running is
    left out, and so is one whose beginning the ring has overwritten. Where an episode ended without
    terminating, time ran out.
    """
    run = agents.run
    latest = run.latest_checkpoint()
    if latest is None:
        raise RunError(
            f"The run {run.path} has no checkpoint yet: let it train until its first one."
        )
    folder = run.checkpoints_path / f"step_{latest:09d}" / "resume"
    verify(folder, RESUME_ARRAYS, ADVICE)
    any_episode = False
    with safetensors.safe_open(folder / RESUME_ARRAYS, framework="np") as file:
        if "ledger/running_start" not in file.keys():  # noqa: SIM118 (it is no mapping)
            raise RunError(
                f"The run {run.path} keeps no replay: collect with its policies, without "
                "--from-replay."
            )
        running = file.get_tensor("ledger/running_start")
        num_envs = run.config.get("settings", {}).get("envs_per_agent", 1)
        for agent in range(len(agents.seeds)):
            lengths = [
                file.get_tensor(f"ledger/lengths_{agent * num_envs + env}")
                for env in range(num_envs)
            ]
            if not any(map(len, lengths)):
                continue
            # One agent at a time: a replay of many agents need not fit into memory twice.
            names = ("observation", "action", "extrinsic_reward", "terminated", "state")
            stored = {name: file.get_slice(f"learner/replay/{name}")[agent] for name in names}
            unit = _position_unit(agents, agent)
            for start, length in stored_episodes(running, lengths, agent, num_envs, steps):
                any_episode = True
                yield agent, _rows(agents.spec, stored, start, length, num_envs, unit)
    if not any_episode:
        raise RunError(
            f"The replay of the run {run.path} holds no complete episode: train it for longer."
        )


def _position_unit(agents: TrainedAgents, agent: int) -> np.float32:
    """What positions are divided by in the states of an agent: 1, or the unit of calibrated
    ones."""
    warm_up, spec = stored_warm_up(agents.run), agents.spec
    if warm_up is None:
        return np.float32(1)
    seed, columns = agents.seeds[agent], spec.orientation_slice
    units = make_state_encoder(seed, spec.task_dim, columns, warm_up=warm_up).units
    assert units is not None
    return np.float32(units.blocks[1])


def _rows(
    spec: EnvSpec, stored: EpisodeRows, start: int, length: int, num_envs: int, unit: np.float32
) -> EpisodeRows:
    slots = (start + num_envs * np.arange(length + 1)) % len(stored["observation"])
    rows = {name: np.array(array[slots]) for name, array in stored.items()}
    # A state is embedding ⊕ position ⊕ orientation (`encoders.state`), so the positions are there,
    # of raw states to the bit.
    state = rows.pop("state")
    end = state.shape[1] - spec.orientation_dim
    rows["position"] = state[:, end - spec.position_dim : end] * unit
    last = -1 if rows["terminated"][length - 1] else length - 1
    rows["truncated"] = np.arange(length + 1) == last
    return rows
