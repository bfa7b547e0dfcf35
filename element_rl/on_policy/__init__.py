"""Training from rollouts: A3C with any of the rewards."""
