"""Intrinsic rewards behind one interface.

    reward = make_reward("element", lifelong_weight=0.5)
    reward = make_reward("rnd", learning_rate=1e-3)
    reward = make_reward("my_reward.py:make", strength=2.0)   # a function in a file of one's own

See `element_rl.rewards.interface` for the functions every reward offers, and
`element_rl.rewards.making` for the registry and for rewards that fit a run.
"""

from element_rl.rewards.interface import Reward, RewardSpec
from element_rl.rewards.making import (
    INTRINSIC_NAMES,
    NAMES,
    REWARD_HELP,
    TRAINING_NAMES,
    check_intrinsic,
    check_name,
    is_own_reward,
    make_bonus,
    make_replay_reward,
    make_reward,
)

__all__ = [
    "INTRINSIC_NAMES",
    "NAMES",
    "REWARD_HELP",
    "TRAINING_NAMES",
    "Reward",
    "RewardSpec",
    "check_intrinsic",
    "check_name",
    "is_own_reward",
    "make_bonus",
    "make_replay_reward",
    "make_reward",
]
