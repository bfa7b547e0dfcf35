"""Learning algorithms: each learns from batches of transitions and knows nothing of rewards, replay
or environments.

Nothing is imported here: environment worker processes import `element_rl.acting.host_policy` and
must not load JAX.
"""
