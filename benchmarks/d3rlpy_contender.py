"""d3rlpy's offline learners on our datasets, with our settings: what `bench_offline_peers` and the
tests compare with.

    learner = make(config, source, portion, seed)     d3rlpy's agent of `config.algorithm`
    for step, parameters in learned(learner, source, portion, ...): ...

Its data, batches, losses, optimisers and order of updates are d3rlpy's own. Sizes, rates, discount
and scales are those of our settings; its policies are read out as flat arrays, so that the same
code evaluates them on the same episodes. d3rlpy is no dependency of this library.
"""

import logging
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from element_rl.training.offline.algorithms import settings_of
from element_rl.training.offline.config import OfflineConfig
from element_rl.training.offline.data import OfflineData, Portion
from element_rl.training.offline.learner import folded


def d3rlpy() -> Any:
    """The library, with one thread and without its messages."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import d3rlpy as library
        import structlog
        import torch

    torch.set_num_threads(1)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    return library


def make(config: OfflineConfig, portion: Portion, seed: int, cosine: bool = True) -> Any:
    """A fresh agent with our settings. Of CQL the weight is constant, as ours is; of IQL the
    actor's rate falls along a cosine, unless told otherwise."""
    library = d3rlpy()
    library.seed(seed)
    settings = settings_of(config, discrete=False)
    encoder = library.models.encoders.VectorEncoderFactory(list(settings.hidden_sizes))
    factor = config.reward_scale * portion.reward_factor
    shared: dict[str, Any] = {
        "batch_size": settings.batch_size,
        "observation_scaler": library.preprocessing.StandardObservationScaler(
            mean=portion.mean, std=portion.deviation, eps=0.0
        ),
    }
    if config.algorithm == "bc":
        return library.algos.BCConfig(
            learning_rate=settings.learning_rate, encoder_factory=encoder, **shared
        ).create(device=False)
    shared |= {
        "reward_scaler": library.preprocessing.MultiplyRewardScaler(factor),
        "gamma": settings.discount,
        "tau": settings.target_rate,
        "actor_learning_rate": settings.actor_learning_rate,
        "critic_learning_rate": settings.critic_learning_rate,
        "actor_encoder_factory": encoder,
        "critic_encoder_factory": encoder,
    }
    return {"cql": _cql, "td3-bc": _td3_bc, "iql": _iql}[config.algorithm](
        library, config, settings, shared, cosine
    ).create(device=False)


def _cql(library: Any, config: OfflineConfig, settings: Any, shared: Any, cosine: bool) -> Any:
    return library.algos.CQLConfig(
        temp_learning_rate=settings.temperature_learning_rate,
        alpha_learning_rate=0.0,
        initial_alpha=1.0,
        initial_temperature=settings.initial_temperature,
        conservative_weight=settings.conservative_weight,
        n_action_samples=settings.sampled_actions,
        soft_q_backup=settings.soft_backup,
        **shared,
    )


def _td3_bc(library: Any, config: OfflineConfig, settings: Any, shared: Any, cosine: bool) -> Any:
    return library.algos.TD3PlusBCConfig(
        alpha=settings.alpha,
        target_smoothing_sigma=settings.smoothing_noise,
        target_smoothing_clip=settings.smoothing_clip,
        update_actor_interval=settings.policy_delay,
        **shared,
    )


def _iql(library: Any, config: OfflineConfig, settings: Any, shared: Any, cosine: bool) -> Any:
    schedule = library.optimizers.lr_schedulers.CosineAnnealingLRFactory(T_max=config.steps)
    rates = library.optimizers.AdamFactory(lr_scheduler_factory=schedule if cosine else None)
    return library.algos.IQLConfig(
        value_encoder_factory=shared["critic_encoder_factory"],
        expectile=settings.expectile,
        weight_temp=settings.inverse_temperature,
        max_weight=settings.weight_clip,
        actor_optim_factory=rates,
        **shared,
    )


def learned(
    learner: Any, source: OfflineData, portion: Portion, steps: int, every: int
) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Trains it on a portion; its policy [1, ...] after every so many updates."""
    library = d3rlpy()
    epochs = learner.fitter(
        dataset_of(source, portion),
        n_steps=steps,
        n_steps_per_epoch=every,
        logger_adapter=library.logging.NoopAdapterFactory(),
        show_progress=False,
        save_interval=steps,  # never: nothing is written
    )
    for epoch, _ in epochs:
        yield epoch * every, policy_of(learner, portion)


def dataset_of(source: OfflineData, portion: Portion) -> Any:
    """The episodes of a portion as d3rlpy wants them: as many observations as actions."""
    step = source.episodes.transitions[portion.first : portion.first + portion.count]
    episodes = source.episodes
    return d3rlpy().dataset.MDPDataset(
        observations=episodes.observation[step],
        actions=episodes.action[step],
        rewards=episodes.reward[step],
        terminals=episodes.terminated[step].astype(np.float32),
        timeouts=episodes.truncated[step].astype(np.float32),
    )


def policy_of(learner: Any, portion: Portion) -> dict[str, np.ndarray]:
    """Its deterministic policy as one of ours, for raw observations: [1, ...]."""
    policy = learner.impl.policy
    head = policy._mu if hasattr(policy, "_mu") else policy._fc
    parameters = flat([*_linear(policy._encoder._layers), head])
    raw = (parameters["weight_0"], parameters["bias_0"])
    weight, bias = folded(*raw, portion.mean[None], portion.deviation[None])
    return parameters | {
        "weight_0": weight,
        "bias_0": bias,
        "exploration_noise": np.zeros(1, np.float32),
    }


def flat(layers: Sequence[Any]) -> dict[str, np.ndarray]:
    """Linear layers of PyTorch as the arrays of a stored policy, [1, in, out] and [1, out]."""
    arrays = {}
    for index, layer in enumerate(layers):
        arrays[f"weight_{index}"] = layer.weight.detach().numpy().T[None].copy()
        arrays[f"bias_{index}"] = layer.bias.detach().numpy()[None].copy()
    return arrays


def _linear(layers: Any) -> list[Any]:
    return [layer for layer in layers if hasattr(layer, "weight")]
