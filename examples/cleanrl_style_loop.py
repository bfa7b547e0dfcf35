"""A bonus in your own training loop: DQN in one file with PyTorch, in the style of CleanRL.

    pip install element-rl torch
    python examples/cleanrl_style_loop.py --steps 20000

The lines marked with ← are all that the bonus needs. The car of MountainCar-v0 gets no other
reward. At the end the script prints how far up the car came, and how much of the plane of position
and velocity it has visited, with the bonus and with random actions.
"""

import argparse

import gymnasium
import numpy as np
import torch
from torch import nn

from element_rl import IntrinsicReward

ENV, BATCH, GAMMA, TARGET_EVERY, LEARN_FROM = "MountainCar-v0", 128, 0.99, 500, 1_000


def train(steps: int, reward: str | None, seed: int) -> np.ndarray:
    """All observations of a run; without a reward it acts at random."""
    env, rng = gymnasium.make(ENV), np.random.default_rng(seed)
    torch.manual_seed(seed)
    bonus = None
    if reward is not None:
        bonus = IntrinsicReward(  # ←
            reward, env.observation_space, env.action_space, capacity=max(steps, 201),
            total_steps=steps, max_episode_steps=200, position=(0, 1), seed=seed,
        )  # fmt: skip
    values, target = (q_network() for _ in range(2))
    target.load_state_dict(values.state_dict())
    optimiser = torch.optim.Adam(values.parameters(), 1e-3)
    before, after = (np.zeros((steps, 2), np.float32) for _ in range(2))
    chosen, ended = np.zeros(steps, np.int64), np.zeros(steps, np.float32)
    observation, _ = env.reset(seed=seed)
    for step in range(steps):
        share = max(0.05, 1.0 - step / (0.5 * steps)) if bonus else 1.0  # of random actions
        with torch.no_grad():
            greedy = int(values(torch.as_tensor(observation)).argmax())
        action = int(rng.integers(3)) if rng.random() < share else greedy
        following, _, terminated, truncated, info = env.step(action)
        before[step], chosen[step], after[step], ended[step] = (
            observation,
            action,
            following,
            terminated,
        )
        if bonus is not None:
            # The true next observation, before any reset, and what ended the episode; a list,
            # because there may be more than one.
            bonus.observe(
                before[[step]], chosen[[step]], after[[step]], [terminated], [truncated], [info]
            )  # ←
        observation = env.reset()[0] if terminated or truncated else following
        if bonus is not None and step >= LEARN_FROM:
            # ← of episodes that have ended; number n is the n-th transition
            drawn = bonus.sample(BATCH, rng)
            # ←
            _, rewards = bonus.update_and_reward(drawn, before[drawn], chosen[drawn], after[drawn])
            learn(
                values,
                target,
                optimiser,
                before[drawn],
                chosen[drawn],
                rewards,
                after[drawn],
                ended[drawn],
            )
        if step % TARGET_EVERY == 0:
            target.load_state_dict(values.state_dict())
    return after


def q_network() -> nn.Module:
    return nn.Sequential(
        nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)
    )


def learn(
    values: nn.Module, target: nn.Module, optimiser: torch.optim.Optimizer, *batch: np.ndarray
) -> None:
    """One step towards r + γ max Q'(s'); only dying ends the sum, running out of time does not."""
    before, chosen, rewards, after, ended = (torch.tensor(part) for part in batch)
    with torch.no_grad():
        wanted = rewards + GAMMA * (1.0 - ended) * target(after).max(dim=1).values
    told = values(before).gather(1, chosen[:, None])[:, 0]
    optimiser.zero_grad()
    nn.functional.mse_loss(told, wanted).backward()
    optimiser.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument(
        "--reward", default="element", help="element, rnd, ngu, re3, rise, apt, icm or e3b"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for reward in (None, options.reward):
        seen = train(options.steps, reward, options.seed)
        cells = len(
            np.unique(np.floor((seen - (-1.2, -0.07)) / (1.8, 0.14) * 40).astype(int), axis=0)
        )
        print(
            f"{reward or 'random actions':<15} {cells:4d} of 1600 cells seen, highest position "
            f"{seen[:, 0].max():.2f} (goal 0.5)"
        )


if __name__ == "__main__":
    main()
