"""Fine-tuning of a run of `element explore`: SAC goes on from a transferred policy."""

import dataclasses
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import Any

from element_rl.runs.folder import RunFolder
from element_rl.runs.watching import Watcher
from element_rl.training.finetune.config import FinetuneConfig, task_settings
from element_rl.training.finetune.experience import kept_chunks, refuse_other_experience
from element_rl.training.finetune.start import chosen_start, transplanted
from element_rl.training.off_policy.explore import Explorer, explore
from element_rl.training.off_policy.launch import create_run, reopen_run


class OnRobots:
    """See `training.finetune.training.Form`."""

    def __init__(self, config: FinetuneConfig, source: RunFolder) -> None:
        self.config, self.source = config, source
        self.settings = task_settings(config, source)
        self.task = self.settings.config

    def chosen(self, watch: Watcher, stop: Callable[[], bool]) -> dict[str, Any]:
        if self.config.replay == "kept":
            refuse_other_experience(self.source, self.task)
        return chosen_start(self.config, self.source, self.task, watch, stop)

    def trained(
        self,
        path: Path,
        transfer: dict[str, Any] | None,
        facts: Mapping[str, Any],
        watch: Watcher,
        stop: Callable[[], bool],
        wait_seconds: float,
    ) -> dict[str, Any]:
        settings, begin = self.settings, None
        if transfer is not None:
            # The transferred policy acts from the first step; agents from scratch act at random
            # until they learn.
            learner: dict[str, Any] = {
                self.task.agent: dataclasses.replace(self.task.learner, learn_start=0)
            }
            settings = settings._replace(config=dataclasses.replace(self.task, **learner))

            def begin(explorer: Explorer) -> None:
                self._begin(explorer, transfer)

        begun = (path / "config.json").exists()
        run = reopen_run(settings, path) if begun else create_run(settings, path)
        return explore(settings, run, watch, stop, begun, wait_seconds, begin, facts)

    def _begin(self, explorer: Explorer, transfer: dict[str, Any]) -> None:
        config, learner = self.config, explorer.learner
        agents = transplanted(
            learner.agent,
            learner.state.agents,
            self.source,
            transfer,
            config.critics,
            config.temperature,
        )
        experience = kept_chunks(self.source, self.task) if config.replay == "kept" else ()
        explorer.begin_with(
            agents, config.critic_warmup, experience, config.anchor, config.anchor_halflife or inf
        )
