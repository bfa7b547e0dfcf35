"""A dataset of this library in another one: d3rlpy's Conservative Q-Learning.

    python examples/train_with_d3rlpy.py hopper/element-v0 500

d3rlpy is no dependency of this library. Install it in an environment of its own, beside Minari;
docs/datasets.md says how, and shows a result. Nothing here imports `element_rl`: it is what a user
of d3rlpy would write.
"""

import importlib.util
import sys
from typing import Any


def main(name: str, steps: int) -> None:
    import d3rlpy
    import minari

    dataset = minari.load_dataset(name)
    replay = mdp_dataset(d3rlpy, dataset)
    print(f"{name}: {replay.transition_count:,} transitions, {replay.size():,} episodes")
    agent = d3rlpy.algos.CQLConfig(batch_size=128).create(device=False)
    # no log folder; d3rlpy prints the losses of every epoch
    quiet = d3rlpy.logging.NoopAdapterFactory()
    agent.fit(
        replay,
        steps,
        n_steps_per_epoch=max(steps // 5, 1),
        logger_adapter=quiet,
        show_progress=False,
    )
    env = dataset.recover_environment()
    observation, _ = env.reset(seed=0)
    total, done = 0.0, False
    while not done:
        action = agent.predict(observation.astype("float32")[None])[0]
        observation, reward, terminated, truncated, _ = env.step(action)
        total, done = total + float(reward), terminated or truncated
    print(f"One episode with the trained policy: return {total:.1f}")


def mdp_dataset(d3rlpy: Any, dataset: Any) -> Any:
    """The episodes as d3rlpy wants them: as many observations as actions."""
    import numpy as np

    episodes = list(dataset.iterate_episodes())
    return d3rlpy.dataset.MDPDataset(
        # Minari keeps the observation after the last step too; d3rlpy 2.8's own `get_minari` does
        # not take it out, and so pairs every episode after the first with the wrong actions.
        observations=np.concatenate([episode.observations[:-1] for episode in episodes]),
        actions=np.concatenate([episode.actions for episode in episodes]),
        rewards=np.concatenate([episode.rewards for episode in episodes]),
        terminals=np.concatenate([episode.terminations for episode in episodes]).astype(np.float32),
        timeouts=np.concatenate([episode.truncations for episode in episodes]).astype(np.float32),
    )


if __name__ == "__main__":
    if importlib.util.find_spec("d3rlpy") is None:
        print("This example needs d3rlpy and Minari: pip install d3rlpy 'minari[hdf5]'")
    elif len(sys.argv) < 2:
        print("Which dataset? python examples/train_with_d3rlpy.py NAME [STEPS]")
    else:
        main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 500)
