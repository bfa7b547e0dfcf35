"""`element collect`: datasets of what the policies of a run do, or of what its replay holds."""

from element_rl.datasets.collecting.config import CollectConfig
from element_rl.datasets.collecting.making import collect

__all__ = ["CollectConfig", "collect"]
