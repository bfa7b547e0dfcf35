"""`element doctor`: is the installation sound, does a bonus work on an environment, did it work in
a run?

    installation    versions, devices, threads, extras, disk, MuJoCo
    warp_installation   MuJoCo Warp, for worlds on the device
    trial           a short real collection with random actions, judged by a bonus
    explorer        does `element explore` take it, and can its entropy tell episodes apart?
    terms           finite? balanced? do new states earn more?
    cost            what a bonus costs beside the environment and a learner; recall of its memory
    learning        does the reward reach a learner: ours, and with `--sb3` Stable-Baselines3's
    run_folder      the same questions asked of a finished run's metrics
    report          findings for people and for programs

Every check is a function that returns `Finding` records; nothing but `report` prints.
"""
