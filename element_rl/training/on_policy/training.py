"""The on-policy loop: asynchronous A3C for several agents, resumable.

Each agent has workers that act side by side. When one delivers, its agent learns from the rollout
and the worker goes on with the newest parameters; the others never wait. Agents share nothing but
the process that serves them, in order of arrival.

A checkpoint holds each worker's place as of its last delivered rollout, and no environment:
episodes depend on their seed and their actions only, so a resumed worker lives its episode again up
to there. With one worker per agent nothing depends on who comes first, and a resumed run equals the
undisturbed one bit for bit on a CPU. With several, the order of arrival does.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from element_rl.acting.rollout import Place
from element_rl.acting.rollout_actor import RolloutSettings
from element_rl.acting.rollout_workers import RolloutWorkers, Stopped, WorkerError
from element_rl.encoders.frozen import FrozenEncoder, load_encoder
from element_rl.envs.make import env_maker
from element_rl.envs.spec import EnvSpec
from element_rl.rewards.interface import Windowed
from element_rl.rewards.on_rollouts import Bonus
from element_rl.runs.folder import RunFolder
from element_rl.runs.metrics_log import FINAL_SHARE
from element_rl.runs.watching import COMPILING, Interrupted, Progress, Watcher
from element_rl.training.loop import final_metrics_of, part, random_measures, run_loop, summary_of
from element_rl.training.measures import MetricsSink
from element_rl.training.on_policy.agent import Agent
from element_rl.training.on_policy.config import (
    OnPolicyConfig,
    bonus_of,
    env_options,
    resolved,
)
from element_rl.training.on_policy.launch import ENCODER, metric_columns
from element_rl.training.on_policy.measures import PendingRows, RolloutMeasures
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
        encoder = load_encoder(run.path / ENCODER)
        with OnPolicy(config, spec, encoder, bonus_of(config, spec, encoder), run) as training:
            run_loop(training, run, watch, stop, resume, begin, _beginning(config))
            summary = training.summary()
    summary["random_policy"] = (
        random_policy(config, spec, encoder, watch) if config.reward != "random" else None
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
        encoder: FrozenEncoder,
        bonus: Bonus | None,
        run: RunFolder | None,
    ) -> None:
        self.config, self.spec, self.run = config, spec, run
        self.seeds = agent_seeds(config)
        self.workers = max(config.workers, 1)
        self.agents = [
            Agent(
                seed,
                spec,
                config.a3c,
                encoder,
                bonus,
                self.workers,
                config.scale_reward,
                config.extrinsic_weight,
            )
            for seed in self.seeds
        ]
        self.measures = RolloutMeasures(spec, len(self.seeds), encoder.state_dim)
        self.pending = PendingRows(self.seeds)
        self.metrics = MetricsSink(run, frozenset(metric_columns(bonus)))
        self.seconds = 0.0  # of training, over all resumptions
        # steps delivered, and those that workers may be making
        self._claimed = [0] * len(self.seeds)
        self._allowed: dict[tuple[int, int], int] = {}  # to each worker
        self._places: dict[tuple[int, int], Place] = {}
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
            self._see(agent, worker, rollout)
            self._start(agent, worker)
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
        workers = self._open_workers()
        parts = {f"agent/{index}": agent.to_arrays() for index, agent in enumerate(self.agents)}
        parts |= {"measures": self.measures.to_arrays(), "pending": self.pending.to_arrays()}
        parts["counters"] = {"seconds": np.array(self.seconds), "logged": np.array(self._logged())}
        for (agent, worker), place in workers.places.items():
            counts = np.array([place.rollouts, place.episode])
            parts[f"place/{agent}/{worker}"] = {
                "counts": counts,
                "actions": place.actions,
                "lstm": place.lstm,
            }
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
        for agent, worker in np.ndindex(len(self.agents), self.workers):
            place = part(arrays, f"place/{agent}/{worker}/")
            rollouts, episode = (int(count) for count in place["counts"])
            self._places[agent, worker] = Place(rollouts, episode, place["actions"], place["lstm"])
        self.run.truncate_metrics(int(arrays["counters/logged"]))

    def summary(self) -> dict[str, Any]:
        """What the run came to, per seed."""
        config, bonus = self.config, self.reward
        facts = {
            "workers": config.workers,
            "encoder": "trained" if config.encoder is not None else "random",
            **(bonus.update_window if isinstance(bonus, Windowed) else {}),
        }
        return summary_of(self, config.env, config.reward, self.seconds, self._rate(), facts)

    def final_metrics(self, share: float = FINAL_SHARE) -> dict[str, list[Any]]:
        """Coverage, furthest place and best episode of all; the rest averaged over the last `share`
        of the run."""
        return final_metrics_of(self.measures.totals(), self.metrics.logged(), self, share)

    def _see(self, index: int, worker: int, rollout: Any) -> None:
        agent = self.agents[index]
        before = agent.steps
        learned = agent.learn_from(worker, rollout)
        self.measures.see_rollout(index, rollout, learned.metrics)
        if rollout.ended:
            self.measures.see_episode(index, rollout, learned.episode)
        every = self.config.log_every or 1
        due = list(range((before // every + 1) * every, agent.steps + 1, every))
        if agent.steps >= self.config.steps and self.config.steps not in due:
            due.append(self.config.steps)
        for step in due:
            self.pending.add(step, index, self.measures.row(index))
            agent.measured = False

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
        steps = min(self.config.a3c.local_steps, left)
        if steps <= 0:
            return
        self._claimed[index] += steps
        self._allowed[index, worker] = steps
        self._open_workers().start(index, worker, self.agents[index].parameters_for(worker), steps)

    def _log(self) -> None:
        timing = {"env_steps_per_second": self._rate(), "wall_seconds": self.seconds}
        if rows := [row | timing for row in self.pending.complete()]:
            self.metrics.add(rows)

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
            a3c, learns = self.config.a3c, self.agents[0].bonus is not None
            shapes = (
                {name: array.shape for name, array in self.agents[0].parameters().items()}
                if learns
                else {}
            )
            make = env_maker(self.spec.name, env_options(self.config))
            settings = RolloutSettings(self.spec, make, a3c.local_steps, a3c.hidden_size, shapes)
            self._rollout_workers = RolloutWorkers(
                settings,
                self.seeds,
                self.config.workers,
                self.config.restarts,
                self._places,
                self.config.env_timeout,
            )
        return self._rollout_workers

    def __enter__(self) -> "OnPolicy":
        return self

    def __exit__(self, *_: object) -> None:
        if self._rollout_workers is not None:
            self._rollout_workers.close()


def random_policy(
    config: OnPolicyConfig,
    spec: EnvSpec,
    encoder: FrozenEncoder,
    watch: Watcher = lambda progress: None,
) -> dict[str, Any] | None:
    """What uniformly random actions reach in as many steps: the same measures, for comparison."""
    if config.random_seeds == 0:
        return None
    config = dataclasses.replace(config, reward="random", seeds=config.random_seeds, begin=None)
    with OnPolicy(config, spec, encoder, None, None) as training:
        return random_measures(training, watch)
