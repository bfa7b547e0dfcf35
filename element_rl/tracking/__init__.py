"""Runs in Weights & Biases, Trackio and MLflow, by `--track`.

A tracker is a reader of the run's folder, in a process of its own: it sends what the folder has
and what it has not sent yet. The training never waits for it, and does not know of it.
"""
