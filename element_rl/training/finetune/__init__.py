"""`element finetune`: the policies that a run found learn on with the task's reward."""

from element_rl.training.finetune.config import FinetuneConfig
from element_rl.training.finetune.training import finetune

__all__ = ["FinetuneConfig", "finetune"]
