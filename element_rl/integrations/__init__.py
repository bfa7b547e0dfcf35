"""Intrinsic rewards where users already are: other people's training loops, learners and
environments.

    IntrinsicReward("element", env.observation_space, env.action_space)     for replay buffers
    RolloutReward("element", env.observation_space, env.action_space)       for rollouts, as of PPO

    sb3                 the same as plug-ins of Stable-Baselines3, SB3-Contrib and SBX (`[sb3]`)
    exploration_info    a Gymnasium wrapper: novelty, coverage and episode entropy in `info`

All stand on the rewards of `element explore` and `element on-policy`; docs/own-loop.md shows the
two classes at work.
"""

from element_rl.integrations.replayed import IntrinsicReward
from element_rl.integrations.rollouts import RolloutReward

__all__ = ["IntrinsicReward", "RolloutReward"]
