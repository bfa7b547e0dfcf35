"""Acting with the policies of a run's checkpoints."""

from element_rl.evaluate.checkpoints import evaluate, film

__all__ = ["evaluate", "film"]
