"""Everything that learns: off-policy, on-policy, offline, on a task, and encoders."""
