"""A population in training: one turn of the loop, what it logs, and what its checkpoints hold.

See `explore` for how chunks, updates and checkpoints follow each other.
"""

import time
from collections.abc import Callable, Iterable
from math import inf
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from element_rl.acting.collector import Chunk
from element_rl.encoders.state import WarmUp
from element_rl.envs.spec import EnvSpec
from element_rl.population import Devices
from element_rl.rewards import Reward, make_reward
from element_rl.runs.folder import RunFolder
from element_rl.runs.metrics_log import FINAL_SHARE
from element_rl.runs.watching import COMPILING, Interrupted, Progress, Watcher
from element_rl.storage.trees import as_long_as, tree_to_arrays
from element_rl.training.loop import final_metrics_of, part, summary_of, tree_of
from element_rl.training.measures import LatestMap, MetricsSink
from element_rl.training.off_policy.collecting import MakeCollector, usual_collector
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.learner import Learner
from element_rl.training.off_policy.measures import ChunkMeasures
from element_rl.training.off_policy.view import agent_of, view_of
from element_rl.training.off_policy.warm_up import warm_up_for
from element_rl.training.settings import agent_seeds

WORLDS = "worlds"  # arrays of a checkpoint: environments on the device
FAULTS = "world_faults"  # times that the physics of an agent's worlds has failed so far


class Explorer:
    """A population in training."""

    def __init__(
        self,
        config: ExploreConfig,
        spec: EnvSpec,
        reward: Reward | None,  # None: they act at random and learn nothing
        run: RunFolder | None,  # None: nothing is written
        make_collector: MakeCollector = usual_collector,
        warm_up: WarmUp | None = None,  # of calibrated states, where another has made it
    ) -> None:
        self.config, self.spec, self.run = config, spec, run
        self.seeds = agent_seeds(config)
        self.learns, self.learn_start = reward is not None, config.learner.learn_start
        self.warm_up = warm_up or warm_up_for(config, spec, run, make_collector)
        # Enough where nobody learns.
        smallest = config.num_envs * 2 * (spec.max_episode_steps + 1) + 2 * config.chunk_steps
        self.learner = Learner(
            spec,
            reward or make_reward("extrinsic"),
            agent_of(config, spec),
            self.seeds,
            config.replay_size if self.learns else smallest,
            config.chunk_steps,
            config.steps,
            config.num_envs,
            config.extrinsic_weight,
            self.warm_up,
            config.updates_per_chunk,
            view_of(config, spec),
            config.inputs,
            on_device=config.physics != "host",
            devices=Devices.of(config.seeds, config.devices),
            from_running=config.learn_from == "running",
        )
        self.measures = ChunkMeasures(spec, len(self.seeds), config.num_envs)
        self.parameters: dict[str, Any] = self.learner.parameters()
        shapes = {name: array.shape[1:] for name, array in self.parameters.items()}
        self.collector = make_collector(config, spec, shapes if self.learns else None)
        if self.learns:
            self.collector.set_parameters(self.parameters)
        self._unsettled: Chunk | None = None  # the latest chunk, until it is in the replay
        self.chunk = 0  # chunks done
        self.episode_index = np.zeros(len(self.seeds) * config.num_envs, np.int64)
        self.seconds = 0.0  # of training, over all resumptions
        self.metrics, self._latest_map = MetricsSink(run), LatestMap(run)

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
        agents = self.learner.devices.put(agents)
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

    def rate(self) -> float:
        """Environment steps per second of training, summed over the agents."""
        return self.step * len(self.seeds) / max(self.seconds, 1e-9)

    def progress(self, doing: str = "") -> Progress:
        """How far the run is, for a watcher."""
        latest, agents = self.metrics.latest, len(self.seeds)
        return Progress(self.step, self.config.last_step, self.rate(), latest, agents, doing)

    def _will_learn(self) -> bool:
        """Once every agent has transitions to learn from: by the time the longest possible episode
        is over, unless episodes are learned from while they run."""
        if not self.learns or self.step < self.learn_start:
            return False
        if self.learner.from_running:
            return self.learner.ledger.all_drawable()
        return self.step >= self.collector.first_end

    def train_chunk(self) -> None:
        """One turn of Algorithm 3: while the agents act (lines 7–9), store and observe what they
        did before (10–16) and learn from it (18–23). The environments never wait for anything but
        the learner's new policies."""
        acts = self.learns and self.step >= self.learn_start
        self.collector.start(self.chunk, "as set" if acts else None)
        self.settle()
        if self._will_learn():
            metrics, parameters = self.learner.update()
            self.measures.see_update(metrics)
            here = self.collector.on_device
            self.parameters = parameters if here else jax.device_get(parameters)
            self.collector.set_parameters(self.parameters)
        self._unsettled = self.collector.wait()
        self.chunk += 1

    def settle(self) -> None:
        """Store the latest chunk and observe the episodes that ended in it, if that has not
        happened yet."""
        if self._unsettled is None:
            return
        chunk, self._unsettled = self._unsettled, None
        self.measures.see_chunk(chunk, self.learner.ingest(chunk))
        self.episode_index = np.array(chunk.episode_index)

    @property
    def reward(self) -> Reward:
        """What the agents learn from."""
        return self.learner.reward

    def latest_episodes(self, shortest: int) -> list[Float[np.ndarray, "_ D"]] | None:
        """States of the latest episode of every agent; None while one has less than `shortest`."""
        starts, lengths = self.measures.last_start, self.measures.last_length
        if lengths.min() < shortest:
            return None
        latest = zip(starts.tolist(), lengths.tolist(), strict=True)
        return [self.learner.states_of(agent, *where) for agent, where in enumerate(latest)]

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
            "tracker": self.measures.to_arrays(),
        }
        arrays = {
            f"{part}/{name}": array
            for part, named in parts.items()
            for name, array in named.items()
        }
        self.run.save_checkpoint(
            self.step,
            jax.device_get(self.parameters),
            self.measures.counts.visits if self.measures.counts.mapped else None,
            arrays
            | tree_to_arrays(state, "learner")
            | tree_to_arrays(self.collector.snapshot(), WORLDS),
            {"step": self.step, "seconds": self.seconds},
            self.learner.save_memories if self.learner.host_memories else None,
        )

    def restore(self) -> None:
        """Go back to the newest checkpoint."""
        assert self.run is not None
        arrays, _, folder = self.run.load_resume()
        self.learner.ledger.restore(part(arrays, "ledger/"))
        self.measures.restore(part(arrays, "tracker/"))
        counters = part(arrays, "counters/")
        self.chunk, self.learner.updates = int(counters["chunk"]), int(counters["updates"])
        # older checkpoints know of none
        self.learner.critic_warmup = int(counters.get("critic_warmup", 0))
        self._anchor(*counters.get("anchor", np.array([0.0, inf])).tolist())
        self.seconds = float(counters["seconds"])
        self.episode_index = counters["episode_index"]
        # the run may have been planned for longer, and its memories be larger
        template = as_long_as(self.learner.state, arrays, "learner")
        self.learner.state = self.learner.devices.put(tree_of(template, arrays, "learner"))
        if self.learner.host_memories:
            self.learner.load_memories(folder)
        self._act_as_learned()
        self.run.truncate_metrics(self.step)
        if (worlds := self.collector.snapshot()) is not None:
            self.collector.restore(tree_of(worlds, arrays, WORLDS))
        else:
            self.collector.resume(self.episode_index, self.learner.running_actions())

    def summary(self) -> dict[str, Any]:
        """What the run came to, per seed."""
        config = self.config
        names = (
            ("update_interval", "update_steps") if config.remember == "windows" else ("remember",)
        )
        facts: dict[str, Any] = {name: getattr(config, name) for name in names}
        if (faults := self.collector.faults()) is not None:
            facts |= {"physics": config.physics, FAULTS: faults.tolist()}
        return summary_of(self, config.env, config.reward, self.seconds, self.rate(), facts)

    def final_metrics(self, share: float = FINAL_SHARE) -> dict[str, list[Any]]:
        """Coverage at the end, the best episode; entropy, return and episode length averaged over
        the last `share`."""
        return final_metrics_of(self.measures.counts.totals(), self.metrics.logged(), self, share)

    def _act_as_learned(self) -> None:
        self.parameters = self.learner.parameters()
        if self.learns:
            self.collector.set_parameters(self.parameters)

    def _log(self) -> None:
        self.settle()
        latest = self.measures.last_start, self.measures.last_length
        entropies = np.asarray(self.learner.evaluation_entropies(*latest))
        timing = {"env_steps_per_second": self.rate(), "wall_seconds": self.seconds}
        sizes = self.learner.memory_sizes()
        rows = self.measures.rows(self.step, self.seeds, entropies, sizes, timing)
        if (faults := self.collector.faults()) is not None:
            for row, number in zip(rows, faults.tolist(), strict=True):
                row[FAULTS] = number
        self.metrics.add(rows)
        self._latest_map.show(self.step, self.measures.counts)

    def __enter__(self) -> "Explorer":
        return self

    def __exit__(self, *_: object) -> None:
        self.collector.close()


def _crossed(before: int, after: int, every: int | None) -> bool:
    return every is not None and after // every > before // every
