"""`element collect`: datasets of what the policies of a run do, or of what its replay holds."""

from element_rl.collect.collecting import CollectConfig, collect

__all__ = ["CollectConfig", "collect"]
