"""The task that a run's policies go on with: its settings, and how agents train on it.

Runs of `element explore` go on with their own agent (`OffPolicyTask`), on-policy runs with A3C
(`OnPolicyTask`); the rest of fine-tuning knows nothing of the difference.

A3C. The policy is transferred: convolutions, LSTM and the actor's head. The critic's head is fresh,
one as agents from scratch have, because it has learned the value of another reward; it can be kept
(`--critics kept`). Adam begins anew. Nothing has to be warmed up: with a GAE decay of 1 an
advantage is the discounted sum of a rollout's rewards less the value, so a wrong value makes the
gradient noisier but, except in the last steps before a rollout is cut, does not bend it. Replay and
temperature are SAC's.

Returns are the environment's own. What the learner gets is multiplied by `--reward-scale`. Super
Mario Bros pays up to 12 a step, which even at a discount of 0.9 makes values of a hundred: their
squared errors would fill the gradient, whose length is limited, and leave nothing of it to the
actor. So its factor is 0.1, as in uvipen/Super-mario-bros-A3C-pytorch; it is 1 elsewhere.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from element_rl.acting.episode import run_episode
from element_rl.acting.evaluator import Evaluator, default_workers
from element_rl.encoders.frozen import load_encoder, save_encoder
from element_rl.runs.folder import RunFolder
from element_rl.runs.kinds import kind_of
from element_rl.runs.watching import Watcher
from element_rl.training.finetune.config import FinetuneConfig
from element_rl.training.finetune.experience import kept_chunks
from element_rl.training.finetune.settings import (
    explored_settings,
    off_policy_settings,
    on_policy_settings,
)
from element_rl.training.finetune.transplants import transplanted, transplanted_policies
from element_rl.training.off_policy import launch as off_policy
from element_rl.training.off_policy.config import ExploreConfig, parsed_options
from element_rl.training.off_policy.explore import Explorer, explore
from element_rl.training.on_policy import launch as on_policy
from element_rl.training.on_policy.config import OnPolicyConfig, env_options
from element_rl.training.on_policy.launch import ENCODER
from element_rl.training.on_policy.training import OnPolicy, train


@runtime_checkable
class Task(Protocol):
    """The task of a run's agents."""

    config: FinetuneConfig
    source: RunFolder  # the run whose policies are transferred

    @property
    def settings(self) -> ExploreConfig | OnPolicyConfig:
        """Of agents that learn the task from scratch."""

    @property
    def in_newest_only(self) -> tuple[str, ...]:
        """What may be kept of agents (`--critics kept`) but is in the newest checkpoint only."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the summaries of runs on the task say besides."""

    def evaluator(self, episodes: int) -> Evaluator:
        """Processes for so many episodes of the task at once."""

    def opened(self, path: Path, begun: bool, transfers: bool) -> tuple[Any, RunFolder]:
        """The settings and the run in a folder, which was begun already or is now; `transfers`: it
        begins with the policies of the source."""

    def begin(self, transfer: dict[str, Any], training: Any) -> None:
        """Gives agents in training the policies that `transfer` names."""

    @property
    def train(self) -> Callable[..., dict[str, Any]]:
        """What trains a run until its steps are done; the summary."""


def task_of(config: FinetuneConfig) -> Task:
    """By the kind of the run; what is wrong with the settings is said here."""
    source = RunFolder.open(config.run)
    kind = OnPolicyTask if kind_of(source.config) == "on-policy" else OffPolicyTask
    return kind(config, source)


def trained(
    task: Task,
    path: Path,
    transfer: dict[str, Any] | None,
    facts: Mapping[str, Any],
    watch: Watcher,
    stop: Callable[[], bool],
    wait_seconds: float,
) -> dict[str, Any]:
    """The summary of the run in a folder, with these facts. It is begun, as `transfer` says or from
    scratch, or continued."""
    begun = (path / "config.json").exists()
    settings, run = task.opened(path, begun, transfer is not None)
    begin = None if transfer is None else partial(task.begin, transfer)
    facts = {**facts, **task.facts}
    return task.train(settings, run, watch, stop, begun, wait_seconds, begin, facts)


class OffPolicyTask:
    """SAC, TD3 or DQN goes on."""

    in_newest_only = ("critics", "temperature")
    facts: Mapping[str, Any] = {}
    train = staticmethod(explore)

    def __init__(self, config: FinetuneConfig, source: RunFolder) -> None:
        self.config, self.source = config, source
        self._resolved = off_policy_settings(config, source)
        self.settings = self._resolved.config

    def evaluator(self, episodes: int) -> Evaluator:
        given = self.settings.workers
        workers = default_workers(episodes) if given is None else min(given, episodes)
        run = partial(run_episode, spec=self._resolved.spec)
        return Evaluator(self.settings.env, parsed_options(self.settings), workers, run=run)

    def opened(self, path: Path, begun: bool, transfers: bool) -> tuple[Any, RunFolder]:
        settings = self._resolved
        if transfers:
            # The transferred policy acts from the first step; agents from scratch act at random
            # until they learn.
            learner: Any = replace(self.settings.learner, learn_start=0)
            changed = replace(self.settings, **{self.settings.agent or "sac": learner})
            settings = settings._replace(config=changed)
        return settings, (off_policy.reopen_run if begun else off_policy.create_run)(settings, path)

    def begin(self, transfer: dict[str, Any], training: Explorer) -> None:
        config, learner = self.config, training.learner
        kept = (config.critics, config.temperature)
        agents = transplanted(learner.agent, learner.state.agents, self.source, transfer, *kept)
        experience = kept_chunks(self.source, self.settings) if config.replay == "kept" else ()
        halflife = config.anchor_halflife or inf
        training.begin_with(agents, config.critic_warmup, experience, config.anchor, halflife)


class OnPolicyTask:
    """A3C goes on."""

    in_newest_only = ()
    train = staticmethod(train)

    def __init__(self, config: FinetuneConfig, source: RunFolder) -> None:
        self.config, self.source = config, source
        self.settings, _ = on_policy_settings(config, source)
        # Its encoder stays in use, to measure by; the settings of the new runs cannot tell whether
        # it was trained.
        is_trained = explored_settings(source, OnPolicyConfig).encoder is not None
        self.facts = {"encoder": "trained" if is_trained else "random"}

    def evaluator(self, episodes: int) -> Evaluator:
        # the run's workers are per agent, more than cores: they wait for one another in turns
        workers = default_workers(episodes) if self.settings.workers else 0
        options = env_options(self.settings)
        return Evaluator(self.settings.env, options, workers)

    def opened(self, path: Path, begun: bool, transfers: bool) -> tuple[Any, RunFolder]:
        if not begun:
            return self.settings, on_policy.create_run(self.settings, path)
        if not (path / ENCODER).exists():  # killed in the moment before it was written
            save_encoder(path / ENCODER, load_encoder(self.source.path / ENCODER))
        # where the explorer's encoder lies now does not matter to a run that was begun
        encoder = explored_settings(RunFolder.open(path), OnPolicyConfig).encoder
        settings = replace(self.settings, encoder=encoder)
        return settings, on_policy.reopen_run(settings, path)

    def begin(self, transfer: dict[str, Any], training: OnPolicy) -> None:
        fresh, critics = training.policies(), self.config.critics
        training.begin_with(transplanted_policies(fresh, self.source, transfer, critics))
        training.save(0)
