"""`element collect`: datasets of what the policies of a run do, or of what its replay holds."""

from element_rl.collect.collecting import collect
from element_rl.collect.config import CollectConfig

__all__ = ["CollectConfig", "collect"]
