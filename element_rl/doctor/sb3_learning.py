"""Does the reward reach Stable-Baselines3's learner? A real SAC (DQN for choices) with
`IntrinsicReplayBuffer` is asked.

Three batches are drawn with the same random numbers: with the bonus, with the bonus again, and with
the bonus turned off. The first two must be equal; the third must have the same transitions and
other rewards. Then the learner learns once from each.
"""

import copy
from typing import Any

import numpy as np
from gymnasium import spaces

from element_rl.doctor.findings import Finding
from element_rl.doctor.trial import TrialSettings, bonus_arguments, make_trial_env
from element_rl.integrations.observations import each_part

BATCH_SIZE = 64
EPISODES = 3  # collected with random actions


def check_sb3(settings: TrialSettings) -> Finding:
    """Batches of Stable-Baselines3, and what it learns from them, change when the bonus does, and
    only then."""
    try:
        from element_rl.integrations import sb3
    except ImportError as error:
        return Finding("reaches SB3", "fail", str(error), "pip install 'element-rl[sb3]'")
    model = _collected(settings, sb3)
    on, again, off = (_asked(model, weight) for weight in (1.0, 1.0, 0.0))
    values = {"with": on["loss"], "with_again": again["loss"], "without": off["loss"]}
    parts = ("observations", "actions", "next_observations", "dones")
    same = all(_equal(on[part], other[part]) for part in parts for other in (again, off))
    steady = _equal(on["rewards"], again["rewards"]) and on["loss"] == again["loss"]
    changed = not _equal(on["rewards"], off["rewards"]) and on["loss"] != off["loss"]
    kind = type(model).__name__
    if same and steady and changed and not np.any(off["rewards"]):
        sentence = (
            f"{kind} of Stable-Baselines3 learns from the bonus (loss {on['loss']:.3g}, without it "
            f"{off['loss']:.3g}); its batches change when the bonus does, and only then."
        )
        return Finding("reaches SB3", "ok", sentence, values=values)
    reasons = {
        "transitions differ though the random numbers are the same": not same,
        "the same bonus gives different rewards twice": not steady,
        "without the bonus nothing changes": not changed,
        "rewards are not 0 without it": bool(np.any(off["rewards"])),
    }
    wrong = "; ".join(reason for reason, holds in reasons.items() if holds)
    sentence = f"{kind} of Stable-Baselines3 does not learn from the bonus alone: {wrong}."
    advice = (
        "Look whether the reward is 0 or constant (above), and for wrappers that change rewards, "
        "such as VecNormalize."
    )
    return Finding("reaches SB3", "fail", sentence, advice, values)


def _collected(settings: TrialSettings, sb3: Any) -> Any:
    """A model that has acted at random and learned nothing yet."""
    from stable_baselines3 import DQN, SAC

    env = make_trial_env(settings)
    of_dictionaries = isinstance(env.observation_space, spaces.Dict)
    steps = EPISODES * settings.episode_steps
    kind, more = (
        (DQN, {}) if isinstance(env.action_space, spaces.Discrete) else (SAC, {"ent_coef": 0.1})
    )
    model = kind(
        "MultiInputPolicy" if of_dictionaries else "MlpPolicy",
        env,
        replay_buffer_class=sb3.IntrinsicDictReplayBuffer
        if of_dictionaries
        else sb3.IntrinsicReplayBuffer,
        replay_buffer_kwargs=bonus_arguments(settings, env)
        | {"total_steps": steps, "reward": settings.reward},
        buffer_size=2 * steps,
        batch_size=BATCH_SIZE,
        learning_starts=2 * steps,
        policy_kwargs={"net_arch": [32, 32]},
        seed=settings.seed,
        # a learned temperature would be no part of the policy, which is put back after each lesson
        **more,
    )
    return model.learn(steps)


def _asked(model: Any, weight: float) -> dict[str, Any]:
    """A batch, and the loss of learning once from it, with a weight of the bonus; the model is left
    as it was."""
    import torch

    kept = copy.deepcopy(model.policy.state_dict())
    buffer, numbers = model.replay_buffer, np.random.RandomState(0).get_state()
    before = buffer.weight, buffer.bonus.state, buffer.bonus.updates
    buffer.weight = weight
    np.random.set_state(numbers)  # noqa: NPY002  the generator that Stable-Baselines3 draws from
    batch = buffer.sample(BATCH_SIZE)
    _, buffer.bonus.state, buffer.bonus.updates = before
    np.random.set_state(numbers)  # noqa: NPY002
    torch.manual_seed(0)
    model.train(gradient_steps=1, batch_size=BATCH_SIZE)
    losses = [
        value
        for name, value in model.logger.name_to_value.items()
        if name in ("train/critic_loss", "train/loss")
    ]
    buffer.weight, buffer.bonus.state, buffer.bonus.updates = before
    model.policy.load_state_dict(kept)
    parts = {name: part for name, part in batch._asdict().items() if part is not None}
    arrays = {
        name: each_part(lambda tensor: tensor.cpu().numpy(), part) for name, part in parts.items()
    }
    return arrays | {"loss": float(losses[0])}


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return all(_equal(one[name], other[name]) for name in one)
    return bool(np.array_equal(one, other, equal_nan=True))
