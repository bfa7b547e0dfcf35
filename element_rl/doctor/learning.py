"""Does the reward reach the learner?

Two learners begin alike and see the same transitions, one with the bonus and one without. Their
targets must differ by exactly the bonus, and what they learn must differ; a third, with the bonus
again, must learn what the first did, or the difference would say nothing. The learner is this
library's SAC (choices are given to it one-hot).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from element_rl.agents import sac
from element_rl.doctor.cost import sac_batch
from element_rl.doctor.findings import Finding
from element_rl.doctor.trial import BATCH_SIZE, Trial

CONFIG = sac.SACConfig(hidden_sizes=(32, 32), batch_size=BATCH_SIZE)
UPDATES = 3
CLOSE = 1e-3  # of the largest reward: what rounding may do to a target


def check_learner(trial: Trial) -> Finding:
    """With the bonus a learner's targets, and what it learns, are others than without it."""
    rng = np.random.default_rng(trial.settings.seed)
    drawn = [trial.bonus.sample(BATCH_SIZE, rng) for _ in range(UPDATES)]
    rewards = [trial.bonus.reward(ids, *trial.transitions(ids)) for ids in drawn]
    given = {
        "with": rewards,
        "without": [np.zeros_like(reward) for reward in rewards],
        "with again": rewards,
    }
    learned = {}
    for name, values_given in given.items():
        pairs = zip(drawn, values_given, strict=True)
        batches = [sac_batch(trial, ids, reward) for ids, reward in pairs]
        learned[name] = _learn(batches, trial.settings.seed)
    rise = np.asarray(learned["with"]["targets"] - learned["without"]["targets"])
    wrong = float(np.max(np.abs(rise - rewards[0])))
    losses = {name: float(result["critic_loss"]) for name, result in learned.items()}
    values = {"critic_loss": losses, "largest_error_of_targets": wrong}
    if losses["with"] != losses["with again"]:
        sentence = (
            "The same learner with the same bonus learned different things twice: nothing can be "
            "concluded."
        )
        return Finding(
            "reaches learner", "warn", sentence, "Run it again on a CPU: JAX_PLATFORMS=cpu.", values
        )
    if (
        wrong > CLOSE * max(float(np.max(np.abs(rewards[0]))), 1.0)
        or losses["with"] == losses["without"]
    ):
        sentence = (
            f"The learner's targets do not differ by the bonus (by up to {wrong:.2g} too much or "
            "too little)."
        )
        advice = (
            "Look where the reward is put into the batch: it must be there before targets or "
            "advantages are computed."
        )
        return Finding("reaches learner", "fail", sentence, advice, values)
    sentence = (
        f"Targets rise by the bonus and by nothing else; after {UPDATES} updates the critics' loss "
        f"is {losses['with']:.3g}, without the bonus {losses['without']:.3g}."
    )
    return Finding("reaches learner", "ok", sentence, values=values)


def _learn(batches: list[sac.Batch], seed: int) -> dict[str, Any]:
    """Targets of the first batch before anything was learned, and the loss of the critics at the
    last."""
    observation_dim, action_dim = batches[0].observation.shape[1], batches[0].action.shape[1]
    agent = sac.create(jax.random.key(seed), observation_dim, action_dim, CONFIG)
    noise = jax.random.normal(jax.random.key(seed + 1), (BATCH_SIZE, action_dim))
    targets = sac.critic_target(agent, batches[0], noise, CONFIG.discount)
    for index, batch in enumerate(batches):
        agent, metrics = _update(agent, batch, jax.random.key(index))
    return {"targets": targets, "critic_loss": jnp.asarray(metrics["critic_loss"])}


@jax.jit
def _update(agent: sac.SACState, batch: sac.Batch, key: Any) -> tuple[sac.SACState, dict[str, Any]]:
    return sac.update(agent, batch, key, CONFIG)
