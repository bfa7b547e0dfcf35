"""Intrinsic rewards for Stable-Baselines3, SB3-Contrib and SBX (extra `[sb3]`); docs/sb3.md shows
them at work.

    IntrinsicReplayBuffer        SAC, TD3, DQN, TQC, ...: a replay_buffer_class
    IntrinsicDictReplayBuffer    the same for Dict observations
    IntrinsicCallback            PPO, A2C, RecurrentPPO, ...: a callback
    LogIntrinsic                 a callback that logs what a buffer's bonus did
"""

try:
    import stable_baselines3 as _  # noqa: F401
except ImportError as error:
    raise ImportError(
        "Stable-Baselines3 is not installed: pip install 'element-rl[sb3]'."
    ) from error

from element_rl.integrations.sb3_replay import (
    IntrinsicDictReplayBuffer,
    IntrinsicReplayBuffer,
    LogIntrinsic,
)
from element_rl.integrations.sb3_rollouts import IntrinsicCallback

__all__ = [
    "IntrinsicCallback",
    "IntrinsicDictReplayBuffer",
    "IntrinsicReplayBuffer",
    "LogIntrinsic",
]
