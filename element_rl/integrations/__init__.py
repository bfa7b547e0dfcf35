"""Where users already are: exploration for other libraries' learners and environments.

    sb3                 intrinsic rewards for Stable-Baselines3, SB3-Contrib and SBX (extra `[sb3]`)
    exploration_info    a Gymnasium wrapper that reports novelty, coverage and episode entropy in `info`

For everything else there is `element_rl.intrinsic`.
"""
