"""A run on Rooms-v0 with tiny networks: two agents, and two checkpoints."""

from collections.abc import Mapping
from pathlib import Path

from element_rl.agents.a3c import A3CConfig
from element_rl.runs.folder import RunFolder
from element_rl.training.on_policy.config import OnPolicyConfig
from element_rl.training.on_policy.launch import create_run
from element_rl.training.on_policy.training import train


def trained_rooms(path: Path, seed: int, steps: int, options: Mapping[str, int]) -> RunFolder:
    config = OnPolicyConfig(
        "Rooms-v0",
        reward="extrinsic",
        steps=steps,
        seed=seed,
        seeds=2,
        workers=0,
        state_dim=3,
        checkpoint_every=steps // 2,
        random_seeds=0,
        env_options=tuple(f"{name}={value}" for name, value in options.items()),
        a3c=A3CConfig(channels=(2, 2), hidden_size=8, local_steps=10),
    )
    run = create_run(config, path)
    train(config, run)
    return run
