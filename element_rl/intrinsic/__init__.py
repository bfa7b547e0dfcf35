"""Intrinsic rewards for other people's training loops: NumPy in, NumPy out.

    bonus = IntrinsicReward("element", env.observation_space, env.action_space)     for replay buffers
    bonus = RolloutReward("element", env.observation_space, env.action_space)       for rollouts, as PPO has them

Both stand on the same rewards as `element explore` and `element on-policy`; docs/own-loop.md shows them at work.
"""

from element_rl.intrinsic.replayed import IntrinsicReward
from element_rl.intrinsic.rollouts import RolloutReward

__all__ = ["IntrinsicReward", "RolloutReward"]
