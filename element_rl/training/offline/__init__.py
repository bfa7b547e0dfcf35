"""`element offline`: agents that learn a task from datasets, without acting to learn."""

from element_rl.training.offline.config import OfflineConfig
from element_rl.training.offline.training import (
    create_offline_run,
    reopen_offline_run,
    train_offline,
)

__all__ = ["OfflineConfig", "create_offline_run", "reopen_offline_run", "train_offline"]
