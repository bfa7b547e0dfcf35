"""The on-policy loop, of several agents of A3C or PPO, resumable.

Each agent has workers that act side by side. When one delivers, an agent of A3C learns from the
rollout and the worker goes on with the newest parameters; the others never wait. An agent of PPO
learns when all its workers have delivered. Agents share nothing but the process that serves them,
in order of arrival.

A checkpoint holds each worker's place as of the last rollout that was learned from, and no
environment: episodes depend on their seed and their actions only, so a resumed worker lives its
episode again up to there. With PPO, and with one worker per agent of A3C, nothing depends on who
comes first, and a resumed run equals the undisturbed one bit for bit on a CPU. With several workers
of A3C, the order of arrival decides.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from element_rl.acting.group_actor import GroupSettings
from element_rl.acting.rollout_actor import RolloutSettings
from element_rl.acting.rollout_workers import ActingSettings, RolloutWorkers, Stopped, WorkerError
from element_rl.encoders.frozen import FrozenEncoder
from element_rl.envs.make import env_maker
from element_rl.envs.spec import EnvSpec
from element_rl.rewards.interface import Windowed
from element_rl.rewards.on_rollouts import Bonus
from element_rl.runs.folder import RunFolder
from element_rl.runs.metrics_log import FINAL_SHARE
from element_rl.runs.watching import COMPILING, Interrupted, Progress, Watcher
from element_rl.training.loop import final_metrics_of, part, random_measures, run_loop, summary_of
from element_rl.training.measures import LatestMap, MetricsSink
from element_rl.training.on_policy.agent import Agent
from element_rl.training.on_policy.config import (
    OnPolicyConfig,
    bonus_of,
    env_options,
    resolved,
)
from element_rl.training.on_policy.launch import metric_columns
from element_rl.training.on_policy.measures import PendingRows, RolloutMeasures
from element_rl.training.on_policy.ppo_agent import PPOAgent
from element_rl.training.on_policy.states import Encoders, kept_encoders
from element_rl.training.settings import agent_seeds


def train(
    config: OnPolicyConfig,
    run: RunFolder,
    watch: Watcher = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
    resume: bool = False,
    wait_seconds: float = 0.0,
    begin: Callable[["OnPolicy"], None] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Train, leaving metrics, checkpoints and a summary in the run folder; the summary.

    `wait_seconds`: for another process that is still at work in the folder. `begin` is called with
    agents that start afresh, not with those that go on from a checkpoint. `facts` are added to the
    summary.
    """
    config, spec = resolved(config)
    with run.exclusively(wait_seconds):
        encoders = kept_encoders(run, config, spec)
        bonus = bonus_of(config, spec, encoders.state_dim)
        with OnPolicy(config, spec, encoders, bonus, run) as training:
            run_loop(training, run, watch, stop, resume, begin, _beginning(config))
            summary = training.summary()
        summary["random_policy"] = (
            random_policy(config, spec, encoders, watch) if config.reward != "random" else None
        )
        summary |= facts or {}
        run.write_summary(summary)
    return summary


def _beginning(config: OnPolicyConfig) -> Callable[["OnPolicy"], None] | None:
    """What the settings say of how the agents begin; nothing where they begin from nothing."""
    if config.begin is None:
        return None
    run = config.begin
    return lambda training: training.begin_with(RunFolder.open(run).load_policy())


class OnPolicy:
    """Agents in training."""

    def __init__(
        self,
        config: OnPolicyConfig,
        spec: EnvSpec,
        encoders: Encoders,
        bonus: Bonus | None,
        run: RunFolder | None,
    ) -> None:
        self.config, self.spec, self.run = config, spec, run
        self.seeds = agent_seeds(config)
        self.workers = max(config.workers or 0, 1)
        self.agents = [self._new_agent(seed, encoders, bonus) for seed in self.seeds]
        self.measures = RolloutMeasures(spec, len(self.seeds), encoders.state_dim)
        self.pending = PendingRows(self.seeds)
        self.metrics = MetricsSink(run, frozenset(metric_columns(bonus, config)))
        self._latest_map = LatestMap(run)
        self.seconds = 0.0  # of training, over all resumptions
        # steps delivered, and those that workers may be making
        self._claimed = [0] * len(self.seeds)
        self._allowed: dict[tuple[int, int], int] = {}  # to each worker
        # of each worker, as of the last rollout that was learned from
        self._places: dict[tuple[int, int], Any] = {}
        self._rollout_workers: RolloutWorkers | None = None

    @property
    def step(self) -> int:
        """Environment steps done by the agent that has done the fewest."""
        return min(agent.steps for agent in self.agents)

    def begin_with(self, policies: Mapping[str, np.ndarray]) -> None:
        """Act as others have learned to: agent i as the i-th of the policies, over again where
        there are fewer."""
        count = len(next(iter(policies.values())))
        for index, agent in enumerate(self.agents):
            agent.begin_with({name: array[index % count] for name, array in policies.items()})

    def policies(self) -> dict[str, np.ndarray]:
        """Parameters of all agents."""
        each = [agent.parameters() for agent in self.agents]
        return {name: np.stack([parameters[name] for parameters in each]) for name in each[0]}

    def train(self, watch: Watcher, stop: Callable[[], bool]) -> None:
        """Act and learn until the steps are done. Raises `Interrupted`, at a checkpoint, when told
        to stop."""
        every = self.config.checkpoint_every or self.config.steps
        began, before = time.perf_counter(), self.seconds
        workers = self._open_workers()
        watch(self._progress(doing=COMPILING if self.step < self.config.steps else ""))
        for who in workers.places:
            self._start(*who)
        while self.step < self.config.steps:
            previous = self.step
            try:
                agent, worker, rollout = workers.next(stop)
            except Stopped:  # a worker may hang, and what it was at is done again
                self.save(self.step)
                raise Interrupted(self.step) from None
            except WorkerError as error:
                self.save(self.step)
                raise WorkerError(
                    f"{error} The run stopped at step {self.step:,}, with a checkpoint."
                ) from error
            # its episode may have ended before
            self._claimed[agent] -= self._allowed[agent, worker] - len(rollout)
            for following in self._see(agent, worker, rollout):
                self._places[agent, following] = workers.places[agent, following]
                self._start(agent, following)
            self.seconds = before + time.perf_counter() - began
            self._log()
            done, stopping = self.step >= self.config.steps, stop()
            if done or stopping:
                self.save(self.step)
            elif self.step // every > previous // every:
                self.save(self.step // every * every)
            watch(self._progress())
            if stopping and not done:
                raise Interrupted(self.step)

    def save(self, step: int) -> None:
        """Write a checkpoint under this step."""
        if self.run is None:
            return
        self._open_workers()
        parts = {f"agent/{index}": agent.to_arrays() for index, agent in enumerate(self.agents)}
        parts |= {"measures": self.measures.to_arrays(), "pending": self.pending.to_arrays()}
        parts["counters"] = {"seconds": np.array(self.seconds), "logged": np.array(self._logged())}
        for (agent, worker), place in self._places.items():
            parts[f"place/{agent}/{worker}"] = place.to_arrays()
        self.run.save_checkpoint(
            step,
            self.policies(),
            self.measures.counts.visits if self.measures.counts.mapped else None,
            {
                f"{part}/{name}": array
                for part, arrays in parts.items()
                for name, array in arrays.items()
            },
            {"step": self.step, "seconds": self.seconds},
        )

    def restore(self) -> None:
        """Go back to the newest checkpoint."""
        assert self.run is not None
        arrays, _, _ = self.run.load_resume()
        for index, agent in enumerate(self.agents):
            agent.restore(part(arrays, f"agent/{index}/"))
        self.measures.restore(part(arrays, "measures/"))
        self.pending.restore(part(arrays, "pending/"))
        self.seconds = float(arrays["counters/seconds"])
        self._claimed = [agent.steps for agent in self.agents]
        acting = self._acting()
        for agent, worker in np.ndindex(len(self.agents), self.workers):
            place = part(arrays, f"place/{agent}/{worker}/")
            self._places[agent, worker] = acting.place_of(place)
        self.run.truncate_metrics(int(arrays["counters/logged"]))

    def summary(self) -> dict[str, Any]:
        """What the run came to, per seed."""
        config, bonus = self.config, self.reward
        facts = {
            "workers": config.workers,
            "encoder": "trained" if config.encoder is not None else "random",
            **({"agent": "ppo"} if config.agent == "ppo" else {}),
            **(bonus.update_window if isinstance(bonus, Windowed) else {}),
        }
        return summary_of(self, config.env, config.reward, self.seconds, self._rate(), facts)

    def final_metrics(self, share: float = FINAL_SHARE) -> dict[str, list[Any]]:
        """Coverage, furthest place and best episode of all; the rest averaged over the last `share`
        of the run."""
        return final_metrics_of(self.measures.totals(), self.metrics.logged(), self, share)

    def _see(self, index: int, worker: int, rollout: Any) -> Sequence[int]:
        """Have an agent learn from what its worker has delivered; the workers that may go on."""
        agent = self.agents[index]
        before = agent.steps
        learned = agent.learn_from(worker, rollout)
        self.measures.see_metrics(index, learned.metrics)
        for lived in learned.lived:
            self.measures.see_rollout(index, lived.rollout)
            if lived.rollout.ended:
                self.measures.see_episode(index, lived.rollout, lived.episode)
        for step in self._due(before, agent.steps):
            self.pending.add(step, index, self.measures.row(index))
            agent.measured = False
        return learned.next

    def _due(self, before: int, now: int) -> list[int]:
        """The steps whose lines of metrics are due. A rollout of PPO may pass several; the line is
        the last one's."""
        every, last = self.config.log_every or 1, self.config.steps
        due = list(range((before // every + 1) * every, now + 1, every))
        if before < last <= now and last not in due:
            due.append(last)
        return due if self.config.agent == "a3c" else due[-1:]

    @property
    def reward(self) -> Bonus | None:
        """What the agents learn from; None: they act at random."""
        return self.agents[0].bonus

    def latest_episodes(self, shortest: int) -> list[Float[np.ndarray, "_ D"]] | None:
        """States of the latest episode of every agent; None while one has less than `shortest`."""
        episodes = self.measures.last_states
        return episodes if min(map(len, episodes)) >= shortest else None

    def _start(self, index: int, worker: int) -> None:
        """Let a worker act again, unless the agent's steps are all made or being made."""
        left = self.config.steps - self._claimed[index]
        steps, claimed = self.agents[index].next_steps(worker, left)
        if steps <= 0:
            return
        self._claimed[index] += claimed
        self._allowed[index, worker] = claimed
        self._open_workers().start(index, worker, self.agents[index].parameters_for(worker), steps)

    def _log(self) -> None:
        timing = {"env_steps_per_second": self._rate(), "wall_seconds": self.seconds}
        if rows := [row | timing for row in self.pending.complete()]:
            self.metrics.add(rows)
            self._latest_map.show(self.step, self.measures.counts)

    def _logged(self) -> int:
        """The last step of which every agent has its line."""
        every = self.config.log_every or 1
        return self.step if self.step >= self.config.steps else self.step // every * every

    def _progress(self, doing: str = "") -> Progress:
        latest, agents = self.metrics.latest, len(self.agents)
        return Progress(self.step, self.config.steps, self._rate(), latest, agents, doing)

    def _rate(self) -> float:
        return sum(agent.steps for agent in self.agents) / max(self.seconds, 1e-9)

    def _open_workers(self) -> RolloutWorkers:
        if self._rollout_workers is None:
            self._rollout_workers = RolloutWorkers(
                self._acting(),
                self.seeds,
                self.config.workers or 0,
                self.config.restarts,
                self._places,
                self.config.env_timeout,
            )
            # before anything is learned, they are where they begin, whoever has delivered since
            self._places = dict(self._rollout_workers.places)
        return self._rollout_workers

    def _new_agent(self, seed: int, encoders: Encoders, bonus: Bonus | None) -> "Agent | PPOAgent":
        config = self.config
        if config.agent == "ppo":
            acting = self._acting_ppo({})
            workers = [acting.envs_of(worker) for worker in range(self.workers)]
            return PPOAgent(seed, self.spec, config, encoders, bonus, workers)
        assert isinstance(encoders, FrozenEncoder)
        learner, weights = config.a3c, (config.scale_reward, config.extrinsic_weight)
        return Agent(seed, self.spec, learner, encoders, bonus, self.workers, *weights)

    def _acting(self) -> ActingSettings:
        """What the workers must know."""
        shapes: dict[str, tuple[int, ...]] = {}
        if self.reward is not None:
            shapes = {name: array.shape for name, array in self.agents[0].parameters().items()}
        if self.config.agent == "ppo":
            return self._acting_ppo(shapes)
        make, a3c = env_maker(self.spec.name, env_options(self.config)), self.config.a3c
        return RolloutSettings(self.spec, make, a3c.local_steps, a3c.hidden_size, shapes)

    def _acting_ppo(self, shapes: Mapping[str, tuple[int, ...]]) -> GroupSettings:
        config, learner = self.config, self.config.ppo
        assert config.envs_per_agent is not None
        assert learner.rollout_steps is not None
        return GroupSettings(
            self.spec,
            env_maker(self.spec.name, env_options(config)),
            config.envs_per_agent,
            self.workers,
            learner.rollout_steps,
            (learner.memory_size or 0) if learner.recurrent else 0,
            shapes,
        )

    def __enter__(self) -> "OnPolicy":
        return self

    def __exit__(self, *_: object) -> None:
        if self._rollout_workers is not None:
            self._rollout_workers.close()


def random_policy(
    config: OnPolicyConfig,
    spec: EnvSpec,
    encoders: Encoders,
    watch: Watcher = lambda progress: None,
) -> dict[str, Any] | None:
    """What uniformly random actions reach in as many steps: the same measures, for comparison."""
    if config.random_seeds == 0:
        return None
    config = dataclasses.replace(config, reward="random", seeds=config.random_seeds, begin=None)
    with OnPolicy(config, spec, encoders, None, None) as training:
        return random_measures(training, watch)
