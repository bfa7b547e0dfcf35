"""The off-policy loop: Algorithm 3 for a population, resumable.

A chunk is K environment steps of every agent. While the environments step with the policies as they
were, the previous chunk is stored, its finished episodes are observed, and the device makes K
updates from all that. So a policy acts K steps behind its learner, and neither side waits for the
other.

A checkpoint may fall anywhere. It holds the learner, the replay and the counters, but no
environment: episodes depend on their seed and their actions only, so the running ones are
re-enacted on resuming, and the resumed run equals the undisturbed one bit for bit on a CPU. (DESIGN
had checkpoints end episodes; this way they change nothing.)
"""

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from element_rl.acting.collector import Chunk, Collector
from element_rl.acting.host_policy import policy_action
from element_rl.agents.making import make_agent
from element_rl.envs.robots import EnvSpec
from element_rl.rewards import Reward, make_reward
from element_rl.rewards.entropy_range import SHORTEST
from element_rl.rewards.interface import SeesEntropy
from element_rl.runs.folder import METRIC_COLUMNS, RunError, RunFolder
from element_rl.runs.metrics_log import FINAL_SHARE, best_episodes, final_averages
from element_rl.runs.provenance import commit, hardware, versions
from element_rl.runs.watching import (
    COMPILING,
    TRANSFER,
    Interrupted,
    Progress,
    Watcher,
    random_policy_watcher,
)
from element_rl.storage.trees import arrays_to_tree, tree_to_arrays
from element_rl.training.off_policy.config import (
    ExploreConfig,
    Resolved,
    agent_seeds,
    parsed_options,
    resolved,
)
from element_rl.training.off_policy.learner import REWARD_COLUMNS, Learner, LearnerState
from element_rl.training.off_policy.measures import Tracker


def explore(
    config: ExploreConfig | Resolved,
    run: RunFolder,
    watch: Watcher = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
    resume: bool = False,
    wait_seconds: float = 0.0,
    begin: Callable[["Explorer"], None] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Train, leaving metrics, checkpoints and a summary in the run folder; the summary.

    `wait_seconds`: how long to wait for another process that is still training in the folder.
    `begin` is called with a population that starts afresh, not with one that goes on from a
    checkpoint. `facts` are added to the summary.
    """
    config, spec, reward = resolved(config)
    with run.exclusively(wait_seconds), Explorer(config, spec, reward, run) as explorer:
        if resume and run.latest_checkpoint() is not None:
            explorer.restore()
        else:
            if resume:
                run.truncate_metrics(-1)  # killed before its first checkpoint: from the beginning
            _begin(explorer, run, begin)
        explorer.train(watch, stop)
        summary = explorer.summary()
    settings = Resolved(config, spec, reward)
    summary["random_policy"], visits = random_policy(settings, watch)
    if visits is not None:
        run.write_random_visits(visits)
    summary |= facts or {}
    run.write_summary(summary)
    return summary


def _begin(
    explorer: "Explorer", run: RunFolder, begin: Callable[["Explorer"], None] | None
) -> None:
    if begin is not None:
        begin(explorer)
    elif (run.path / TRANSFER).exists():
        raise RunError(
            f"The run {run.path} was stopped before its policies were transferred to it: continue "
            "it with element finetune."
        )


class Explorer:
    """A population in training."""

    def __init__(
        self, config: ExploreConfig, spec: EnvSpec, reward: Reward | None, run: RunFolder | None
    ) -> None:
        self.config, self.spec, self.run = config, spec, run
        self.seeds = agent_seeds(config)
        self.learns = reward is not None
        # Enough where nobody learns.
        smallest = config.envs_per_agent * 2 * (spec.max_episode_steps + 1) + 2 * config.chunk_steps
        self.learner = Learner(
            spec,
            reward or make_reward("extrinsic"),
            make_agent(config.agent, config.learner, spec.observation_dim, spec.action_dim),
            self.seeds,
            config.replay_size if self.learns else smallest,
            config.chunk_steps,
            config.steps,
            config.envs_per_agent,
            config.extrinsic_weight,
        )
        self.tracker = Tracker(spec, len(self.seeds), config.envs_per_agent)
        self.parameters = self.learner.parameters()
        self.collector = Collector(
            spec,
            self.seeds,
            config.chunk_steps,
            policy_action if self.learns else None,
            {name: array.shape[1:] for name, array in self.parameters.items()}
            if self.learns
            else {},
            env_options=parsed_options(config),
            num_workers=config.workers,
            num_envs=config.envs_per_agent,
        )
        if self.learns:
            self.collector.set_parameters(self.parameters)
        self._unsettled: Chunk | None = None  # the latest chunk, until it is in the replay
        self.chunk = 0  # chunks done
        self.episode_index = np.zeros(len(self.seeds) * config.envs_per_agent, np.int64)
        self.seconds = 0.0  # of training, over all resumptions
        self.latest: dict[str, float] = {}
        # what is wrong with the reward's entropy; None until an episode was seen
        self.entropy_note: str | None = None
        self.rows: list[dict[str, Any]] = []  # of metrics, where there is no folder for them

    @property
    def step(self) -> int:
        """Environment steps done, per agent."""
        return self.chunk * self.config.chunk_steps

    def begin_with(
        self,
        agents: Any,
        critic_warmup: int = 0,
        experience: Iterable[Chunk] = (),
        anchor_weight: float = 0.0,
        anchor_halflife: float = inf,
    ) -> None:
        """Start from these agents [P, ...] instead of fresh ones, and write that as the checkpoint
        of step 0.

        In the first `critic_warmup` updates their actors stay as they are. `experience`: whole
        episodes of others, to learn from beside their own; nothing of it is counted or measured. An
        `anchor_weight` above 0 holds the actors near what they were (`sac.Anchor`); it halves every
        `anchor_halflife` updates.
        """
        self.learner.state = self.learner.state._replace(agents=agents)
        self.learner.critic_warmup = critic_warmup
        self._anchor(anchor_weight, anchor_halflife)
        for chunk in experience:
            self.learner.ingest(chunk)
        self._act_as_learned()
        self.save()

    def _anchor(self, weight: float, halflife: float) -> None:
        """Hold the actors near what they are now, if that weighs anything."""
        self.learner.anchor_weight, self.learner.anchor_halflife = weight, halflife
        if weight > 0:
            # their own are donated to the updates
            actors = jax.tree.map(jnp.copy, self.learner.state.agents.actor)
            self.learner.state = self.learner.state._replace(anchor=actors)

    def train(self, watch: Watcher, stop: Callable[[], bool]) -> None:
        """Collect and learn until the steps are done. Raises `Interrupted`, at a checkpoint, when
        told to stop."""
        last_log, last_checkpoint = self.step, self.step
        watch(self.progress(doing=COMPILING if self.step < self.config.steps else ""))
        # what this process has done before: the first time it takes long
        compiled: set[str] = set()

        def first_time(what: str) -> None:
            if what not in compiled:
                compiled.add(what)
                watch(self.progress(doing=COMPILING))

        while self.step < self.config.steps:
            if self._will_learn():
                first_time("learning")
            began = time.perf_counter()
            self.train_chunk()
            self.seconds += time.perf_counter() - began
            done = self.step >= self.config.steps
            if done or _crossed(last_log, self.step, self.config.log_every):
                last_log = self.step
                first_time("measuring")
                self._log()
            stopping = stop() and not done
            if (
                done
                or stopping
                or _crossed(last_checkpoint, self.step, self.config.checkpoint_every)
            ):
                last_checkpoint = self.step
                self.save()
            watch(self.progress())
            if stopping:
                raise Interrupted(self.step)

    def progress(self, doing: str = "") -> Progress:
        """How far the run is, for a watcher."""
        agents = len(self.seeds)
        rate = self.step * agents / max(self.seconds, 1e-9)
        return Progress(
            self.step, self.config.steps, rate, self.latest, agents, doing, self.entropy_note or ""
        )

    def _will_learn(self) -> bool:
        """By the time the longest possible episode is over, every agent has transitions to learn
        from."""
        longest = self.spec.max_episode_steps * self.config.envs_per_agent
        return self.learns and self.step >= max(self.config.learner.learn_start, longest)

    def train_chunk(self) -> None:
        """One turn of Algorithm 3: while the agents act (lines 7–9), store and observe what they
        did before (10–16) and learn from it (18–23). The environments never wait for anything but
        the learner's new policies."""
        acts = self.learns and self.step >= self.config.learner.learn_start
        self.collector.start(self.chunk, "as set" if acts else None)
        self.settle()
        if self._will_learn():
            metrics, parameters = self.learner.update()
            self.tracker.see_update(metrics)
            self.parameters = jax.device_get(parameters)
            self.collector.set_parameters(self.parameters)
        self._unsettled = self.collector.wait()
        self.chunk += 1

    def settle(self) -> None:
        """Store the latest chunk and observe the episodes that ended in it, if that has not
        happened yet."""
        if self._unsettled is None:
            return
        chunk, self._unsettled = self._unsettled, None
        self.tracker.see_chunk(chunk, self.learner.ingest(chunk))
        self.episode_index = np.array(chunk.episode_index)
        self._judge_entropy()

    def _judge_entropy(self) -> None:
        """Once, when every agent has an episode: can the entropy that the reward sees tell episodes
        apart?"""
        reward, tracker = self.learner.reward, self.tracker
        if self.entropy_note is not None or not isinstance(reward, SeesEntropy):
            return
        if tracker.last_length.min() >= SHORTEST:
            latest = zip(tracker.last_start.tolist(), tracker.last_length.tolist(), strict=True)
            episodes = [self.learner.states_of(agent, *where) for agent, where in enumerate(latest)]
            self.entropy_note = reward.entropy_note(episodes)

    def save(self) -> None:
        """Write a checkpoint."""
        if self.run is None:
            return
        self.settle()
        filled = max(self.learner.ledger.filled(agent) for agent in range(len(self.seeds)))
        # the rest was never written
        replay = jax.tree.map(lambda leaf: leaf[:, :filled], self.learner.state.replay)
        state = self.learner.state._replace(replay=replay)
        counters = {
            "chunk": np.array(self.chunk),
            "updates": np.array(self.learner.updates),
            "critic_warmup": np.array(self.learner.critic_warmup),
            "anchor": np.array([self.learner.anchor_weight, self.learner.anchor_halflife]),
            "episode_index": self.episode_index,
            "seconds": np.array(self.seconds),
        }
        parts = {
            "counters": counters,
            "ledger": self.learner.ledger.to_arrays(),
            "tracker": self.tracker.to_arrays(),
        }
        arrays = {
            f"{part}/{name}": array
            for part, named in parts.items()
            for name, array in named.items()
        }
        self.run.save_checkpoint(
            self.step,
            self.parameters,
            self.tracker.visits if self.spec.coverage_bounds is not None else None,
            arrays | tree_to_arrays(state, "learner"),
            {"step": self.step, "seconds": self.seconds},
            self.learner.save_memories if self.learner.host_memories else None,
        )

    def restore(self) -> None:
        """Go back to the newest checkpoint."""
        assert self.run is not None
        arrays, _, folder = self.run.load_resume()
        parts: dict[str, dict[str, np.ndarray]] = {"counters": {}, "ledger": {}, "tracker": {}}
        for name, array in arrays.items():
            part, _, rest = name.partition("/")
            if part in parts:
                parts[part][rest] = array
        self.learner.ledger.restore(parts["ledger"])
        self.tracker.restore(parts["tracker"])
        counters = parts["counters"]
        self.chunk, self.learner.updates = int(counters["chunk"]), int(counters["updates"])
        # older checkpoints know of none
        self.learner.critic_warmup = int(counters.get("critic_warmup", 0))
        self._anchor(*counters.get("anchor", np.array([0.0, inf])).tolist())
        self.seconds = float(counters["seconds"])
        self.episode_index = counters["episode_index"]
        self.learner.state = _restored(
            self.learner.state, {n: a for n, a in arrays.items() if n.startswith("learner")}
        )
        if self.learner.host_memories:
            self.learner.load_memories(folder)
        self._act_as_learned()
        self.run.truncate_metrics(self.step)
        self.collector.resume(self.episode_index, self._running_actions())

    def summary(self) -> dict[str, Any]:
        """What the run came to, per seed."""
        steps = self.step
        final = self.final_metrics()
        return {
            "env": self.config.env,
            "reward": self.config.reward,
            "steps": steps,
            "seeds": self.seeds,
            "wall_seconds": self.seconds,
            "env_steps_per_second": steps * len(self.seeds) / max(self.seconds, 1e-9),
            **final,
            "update_interval": self.config.update_interval,
            "update_steps": self.config.update_steps,
            "versions": versions(),
            "commit": commit(),
            "hardware": hardware(),
        }

    def final_metrics(self, share: float = FINAL_SHARE) -> dict[str, list[Any]]:
        """Coverage at the end, the best episode; entropy, return and episode length averaged over
        the last `share`."""
        logged = self.run.read_metrics() if self.run is not None else self._logged_here()
        covered = self.tracker.coverage() if self.spec.coverage_bounds else None
        return {
            "coverage": [None] * len(self.seeds)
            if covered is None
            else [int(cells) for cells in covered],
            **best_episodes(self.tracker.best_return.tolist(), self.tracker.best_length.tolist()),
            **final_averages(logged, self.step, self.seeds, share),
        }

    def _act_as_learned(self) -> None:
        self.parameters = self.learner.parameters()
        if self.learns:
            self.collector.set_parameters(self.parameters)

    def _log(self) -> None:
        self.settle()
        entropies = self._evaluated_entropies()
        timing = {
            "env_steps_per_second": self.step * len(self.seeds) / max(self.seconds, 1e-9),
            "wall_seconds": self.seconds,
        }
        rows = self.tracker.rows(
            self.step, self.seeds, entropies, self.learner.memory_sizes(), timing
        )
        self.latest = {
            name: float(np.mean([row[name] for row in rows]))
            for name in rows[0]
            if name not in ("step", "seed")
        }
        if self.run is not None:
            self.run.append_metrics(rows)
        else:
            self.rows += rows

    def _logged_here(self) -> dict[str, np.ndarray]:
        return {
            name: np.array([row[name] for row in self.rows], np.float64) for name in self.rows[0]
        }

    def _evaluated_entropies(self) -> Float[np.ndarray, " P"]:
        return np.asarray(
            self.learner.shannon_entropies(self.tracker.last_start, self.tracker.last_length)
        )

    def _running_actions(self) -> list[np.ndarray]:
        """Of the episode that runs in each environment."""
        action, num_envs = self.learner.state.replay.action, self.config.envs_per_agent
        return [
            np.asarray(action[row // num_envs, self.learner.ledger.running_slots(row)])
            for row in range(len(self.episode_index))
        ]

    def __enter__(self) -> "Explorer":
        return self

    def __exit__(self, *_: object) -> None:
        self.collector.close()


def random_policy(
    settings: ExploreConfig | Resolved,
    watch: Watcher = lambda progress: None,
) -> tuple[dict[str, Any] | None, Int[np.ndarray, "P X Y"] | None]:
    """What uniformly random actions reach in as many steps: the same measures and map, for
    comparison.

    None where nobody asked for it or the run itself acts at random; no map where there are no
    positions.
    """
    config, spec, _ = resolved(settings)
    if config.random_seeds == 0 or config.reward == "random":
        return None, None
    config = dataclasses.replace(
        config,
        reward="random",
        reward_options=(),
        recent_scale=False,
        extrinsic_weight=0.0,
        seeds=config.random_seeds,
    )
    with Explorer(config, spec, None, None) as explorer:
        explorer.train(random_policy_watcher(watch), lambda: False)
        measures = {
            "steps": explorer.step,
            "seeds": explorer.seeds,
            **explorer.final_metrics(share=1.0),
        }
        return measures, explorer.tracker.visits if spec.coverage_bounds is not None else None


def metric_columns(reward: Reward | None, extrinsic_weight: float = 0.0) -> tuple[str, ...]:
    """The header of metrics.csv for a run with this reward, and with so much of the environment's
    beside it."""
    own = reward.metric_names if reward is not None else ()
    both = REWARD_COLUMNS if extrinsic_weight else ()
    return (*METRIC_COLUMNS, "target_mean", "temperature_loss", *both, *own)


def _restored(state: LearnerState, arrays: dict[str, np.ndarray]) -> LearnerState:
    """The learner's arrays; those of the replay are padded to its capacity, and grown memories to
    theirs."""
    templates = tree_to_arrays(state, "learner")
    padded = {}
    for name, array in arrays.items():
        shape = templates[name].shape if name in templates else array.shape
        widths = [(0, max(want - have, 0)) for want, have in zip(shape, array.shape, strict=True)]
        padded[name] = np.pad(array, widths) if any(w for _, w in widths) else array
    return arrays_to_tree(state, padded, "learner")


def _crossed(before: int, after: int, every: int | None) -> bool:
    return every is not None and after // every > before // every
