"""Episodes of the policies of a run's checkpoints, acted as in training until so many samples are
taken. Acting takes a while, so what a policy did is kept in the run's folder and not done again."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from jaxtyping import Float

from element_rl.acting.episode import record_paths
from element_rl.acting.evaluator import Evaluator, workers_for
from element_rl.acting.processes import SharedArrays
from element_rl.acting.rollout_actor import RolloutActor, RolloutSettings, parameter_key
from element_rl.envs.make import env_maker
from element_rl.runs.folder import RunFolder
from element_rl.storage.files import read_arrays, write_arrays
from element_rl.storage.settings import settings_from_json
from element_rl.studies.engine.environments import FRAMES, kind_of_run
from element_rl.training.off_policy.config import config_from_json, parsed_options
from element_rl.training.off_policy.resolving import described
from element_rl.training.on_policy.config import OnPolicyConfig, env_options, resolved

Positions = Float[np.ndarray, "_ _"]  # of an episode
# checkpoints, and the episodes of each
Acted = Iterator[tuple[int, list[Positions]]]


def acted(
    run: RunFolder, steps: Sequence[int], agent: int, samples: int
) -> dict[int, list[Positions]]:
    """By checkpoint: positions of the episodes of an agent's policy."""
    files = {
        step: run.evaluation_path / f"acted-{step:09d}-{agent}-{samples}.safetensors"
        for step in steps
    }
    missing = [step for step, file in files.items() if not file.exists()]
    act = act_on_frames if kind_of_run(run) is FRAMES else act_on_vectors
    for step, episodes in act(run, missing, agent, samples):
        write_arrays(
            files[step], {f"episode_{index:05d}": array for index, array in enumerate(episodes)}
        )
    return {
        step: [array for _, array in sorted(read_arrays(file)[0].items())]
        for step, file in files.items()
    }


def act_on_vectors(run: RunFolder, steps: Sequence[int], agent: int, samples: int) -> Acted:
    """All checkpoints at once, in as many processes as there are cores; a few at a time, so that
    what is done is kept."""
    config = config_from_json(run.config["settings"])
    options = parsed_options(config)
    workers = workers_for(len(steps), len(steps) * samples)
    together = max(workers, 1)
    act = partial(record_paths, described(run.config["settings"], options), samples)
    with Evaluator(config.env, options, workers, run=act) as evaluator:
        for batch in (steps[begin : begin + together] for begin in range(0, len(steps), together)):
            policies = [run.load_policy(step) for step in batch]
            parameters = {
                name: np.stack([policy[name][agent] for policy in policies]) for name in policies[0]
            }
            evaluator.start(
                parameters,
                [[(config.seed + agent, step, 0)] for step in batch],
                deterministic=False,
            )
            yield from zip(batch, evaluator.results(), strict=True)


def act_on_frames(run: RunFolder, steps: Sequence[int], agent: int, samples: int) -> Acted:
    """One checkpoint after the other, with the actor that collects rollouts."""
    config, spec = resolved(settings_from_json(OnPolicyConfig, run.config["settings"]))
    for step in steps:
        parameters = {name: array[agent] for name, array in run.load_policy(step).items()}
        shapes = {name: array.shape for name, array in parameters.items()}
        make, a3c = env_maker(spec.name, env_options(config)), config.a3c
        settings = RolloutSettings(spec, make, a3c.local_steps, a3c.hidden_size, shapes)
        arrays = SharedArrays(settings.array_layout()).views()
        for name, array in parameters.items():
            arrays[parameter_key(name)][...] = array
        # No worker had this number, so that these episodes are none of those that were learned
        # from.
        worker = config.num_workers + 1 + step
        actor = RolloutActor(settings, config.seed + agent, worker, None, arrays)
        try:
            yield step, _episodes_of_rollouts(actor, arrays, config.a3c.local_steps, samples)
        finally:
            actor.close()


def _episodes_of_rollouts(
    actor: RolloutActor, arrays: dict[str, np.ndarray], local_steps: int, samples: int
) -> list[Positions]:
    """Positions of the actor's rollouts, joined where an episode goes on in the next."""
    episodes: list[list[np.ndarray]] = []
    while samples > 0:
        facts = actor.act(min(samples, local_steps))
        if facts.begins:
            episodes.append([arrays["positions"][:1].copy()])
        episodes[-1].append(arrays["positions"][1 : facts.steps + 1].copy())
        samples -= facts.steps
    return [np.concatenate(parts) for parts in episodes]
