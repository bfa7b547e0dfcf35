"""`element mario`: `element on-policy` on Super Mario Bros 1-1, with the paper's settings."""

from element_rl.commands.on_policy import COMMAND, OnPolicyCommand
from element_rl.commands.training import run_training
from element_rl.envs.names import MARIO
from element_rl.training.on_policy.config import OnPolicyConfig


def main(arguments: list[str]) -> int:
    default = OnPolicyCommand(OnPolicyConfig(MARIO))
    return run_training(COMMAND, arguments, "element mario", default)
