"""Offline learners beside d3rlpy's, number by number: both have the same weights and the same
batches, so that what they compute is equal, not alike.

benchmarks/bench_offline_peers.py compares what they learn.
"""

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.d3rlpy_contender import d3rlpy, make
from element_rl.agents import behaviour_cloning, cql, iql, sac, td3_bc
from element_rl.agents.contract import Batch
from element_rl.mlp import MLP
from element_rl.training.offline.config import OfflineConfig
from element_rl.training.offline.data import Portion

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("d3rlpy") is None, reason="d3rlpy is not there"),
    pytest.mark.filterwarnings("ignore"),
]
OBSERVATION_DIM, ACTION_DIM, BATCH, UPDATES = 3, 2, 16, 10
SIZES: dict[str, Any] = {"hidden_sizes": (16, 16), "batch_size": BATCH}
CONFIG = OfflineConfig(
    ("any",),
    steps=UPDATES,
    cql=cql.CQLConfig(sampled_actions=3, temperature_learning_rate=1e-12, **SIZES),
    td3_bc=td3_bc.TD3BCConfig(smoothing_noise=0.0, **SIZES),
    iql=iql.IQLConfig(**SIZES),
    bc=behaviour_cloning.CloningConfig(**SIZES),
)
ZEROS, ONES = np.zeros(OBSERVATION_DIM, np.float32), np.ones(OBSERVATION_DIM, np.float32)
PORTION = Portion(0, None, 0, BATCH, 0.0, ZEROS, ONES)


def batch_of(number: int) -> Batch:
    rng = np.random.default_rng(number)
    before, after = (rng.normal(size=(BATCH, OBSERVATION_DIM)) for _ in range(2))
    action, reward = rng.uniform(-1, 1, size=(BATCH, ACTION_DIM)), rng.normal(size=BATCH)
    arrays = (before, action, reward, after, np.arange(BATCH) % 4 == 0)
    return Batch(*(jnp.asarray(array, jnp.float32) for array in arrays))


def torch_batch(batch: Batch) -> Any:
    """The same for d3rlpy."""
    arrays = {name: np.array(value, np.float32) for name, value in batch._asdict().items()}
    columns = {"rewards": arrays["reward"][:, None], "terminals": arrays["terminated"][:, None]}
    given = d3rlpy().dataset.TransitionMiniBatch(
        observations=arrays["observation"],
        actions=arrays["action"],
        next_observations=arrays["next_observation"],
        next_actions=np.zeros_like(arrays["action"]),
        intervals=np.ones((BATCH, 1), np.float32),
        transitions=[],
        **columns,
    )
    return d3rlpy().torch_utility.TorchMiniBatch.from_batch(
        batch=given, gamma=0.99, compute_returns_to_go=False, device="cpu:0"
    )


def theirs(algorithm: str) -> Any:
    """d3rlpy's agent, still with weights of its own."""
    config = OfflineConfig(**{**CONFIG.__dict__, "algorithm": algorithm})
    learner = make(config, PORTION, seed=0, cosine=False)
    learner.create_impl((OBSERVATION_DIM,), ACTION_DIM)
    return learner.impl


def layers_of(module: Any) -> list[Any]:
    """The linear layers of a network of d3rlpy: those of its encoder, then its head."""
    encoder = [layer for layer in module._encoder._layers if hasattr(layer, "weight")]
    heads = [head for name in ("_mu", "_fc", "_logstd") if (head := getattr(module, name, None))
             is not None and hasattr(head, "weight")]  # fmt: skip
    return [*encoder, *heads]


def copy_weights(network: MLP, module: Any) -> None:
    """Our weights into d3rlpy's network; a head that describes a Gaussian is two there."""
    import torch

    layers, weights, biases = layers_of(module), list(network.weights), list(network.biases)
    if len(layers) > len(weights):
        weights[-1:], biases[-1:] = jnp.split(weights[-1], 2, axis=1), jnp.split(biases[-1], 2)
    with torch.no_grad():
        for layer, weight, bias in zip(layers, weights, biases, strict=True):
            layer.weight.copy_(torch.tensor(np.array(weight).T.copy()))
            layer.bias.copy_(torch.tensor(np.array(bias)))


def copy_critics(critics: Any, *ensembles: Any) -> None:
    for ensemble in ensembles:
        for index, module in enumerate(ensemble):
            copy_weights(jax.tree.map(lambda leaf, i=index: leaf[i], critics.networks), module)


def assert_same_network(network: MLP, module: Any, atol: float = 2e-5) -> None:
    layers = layers_of(module)[: len(network.weights)]
    for layer, weight, bias in zip(layers, network.weights, network.biases, strict=True):
        np.testing.assert_allclose(weight, layer.weight.detach().numpy().T, atol=atol)
        np.testing.assert_allclose(bias, layer.bias.detach().numpy(), atol=atol)


def assert_same_critics(critics: Any, ensemble: Any) -> None:
    for index, module in enumerate(ensemble):
        own = jax.tree.map(lambda leaf, i=index: leaf[i], critics.networks)
        assert_same_network(own, module)


def trained(state: Any, update: Callable[..., Any], config: Any, impl: Any) -> Any:
    """Both on the same batches; our state then. d3rlpy counts updates from 0, and so would let the
    actor of TD3 learn in the first, ours does in the second."""
    step = jax.jit(update, static_argnames="config")
    for number in range(UPDATES):
        state, _ = step(state, batch_of(number), jax.random.key(number), config)
        impl.inner_update(torch_batch(batch_of(number)), number + 1)
    return state


def test_cloning_learns_the_same_weights() -> None:
    impl = theirs("bc")
    state = behaviour_cloning.create(jax.random.key(0), OBSERVATION_DIM, ACTION_DIM, CONFIG.bc)
    mean = MLP(
        (*state.actor.network.weights[:-1], state.actor.network.weights[-1][:, :ACTION_DIM]),
        (*state.actor.network.biases[:-1], state.actor.network.biases[-1][:ACTION_DIM]),
    )
    copy_weights(mean, impl.policy)
    learned = trained(state, behaviour_cloning.update, CONFIG.bc, impl).actor.network
    head = layers_of(impl.policy)[-1]
    weight = learned.weights[-1][:, :ACTION_DIM]
    np.testing.assert_allclose(weight, head.weight.detach().numpy().T, atol=2e-5)
    assert float(np.abs(weight - mean.weights[-1]).max()) > 1e-3  # it has learned


def test_td3_bc_learns_the_same_weights() -> None:
    impl = theirs("td3-bc")
    create = td3_bc.agent(CONFIG.td3_bc, OBSERVATION_DIM, ACTION_DIM).create
    state = create(jax.random.key(0))
    copy_weights(state.actor, impl.policy)
    copy_weights(state.actor, impl._modules.targ_policy)
    copy_critics(state.critics, impl._modules.q_funcs, impl._modules.targ_q_funcs)
    learned = trained(state, td3_bc.update, CONFIG.td3_bc, impl)
    assert_same_critics(learned.critics, impl._modules.q_funcs)
    assert_same_critics(learned.target_critics, impl._modules.targ_q_funcs)
    assert_same_network(learned.actor, impl.policy)
    assert_same_network(learned.target_actor, impl._modules.targ_policy)


def iql_pair() -> tuple[Any, iql.IQLState]:
    """Both with the same weights; d3rlpy's log σ is -1.5 at first, between its bounds of -5 and
    2."""
    impl = theirs("iql")
    state = iql.create(jax.random.key(0), OBSERVATION_DIM, ACTION_DIM, CONFIG.iql)
    actor = iql.GaussianActor(state.actor.network, jnp.full(ACTION_DIM, -1.5))
    state = iql.IQLState(**{**state.__dict__, "actor": actor})
    copy_weights(state.actor.network, impl.policy)
    copy_weights(state.value, impl._modules.value_func)
    copy_critics(state.critics, impl._modules.q_funcs)
    # other targets, so that the two can be told apart
    copy_critics(jax.tree.map(lambda leaf: 0.5 * leaf, state.critics), impl._modules.targ_q_funcs)
    targets = jax.tree.map(lambda leaf: 0.5 * leaf, state.critics)
    return impl, iql.IQLState(**{**state.__dict__, "target_critics": targets})


def test_iql_has_the_same_losses() -> None:
    impl, state = iql_pair()
    batch = batch_of(0)
    of_data = jnp.min(state.target_critics(batch.observation, batch.action), axis=0)
    value, _ = iql.value_loss(state.value, batch.observation, of_data, 0.7)
    following = iql.value_of(state.value, batch.next_observation)
    target = batch.reward + 0.99 * (1 - batch.terminated) * following
    error = state.critics(batch.observation, batch.action) - target[None]
    advantage = of_data - iql.value_of(state.value, batch.observation)
    actor, _ = iql.actor_loss(state.actor, batch, iql.advantage_weight(advantage, 3.0, 100.0))

    given = torch_batch(batch)
    critics = impl.compute_critic_loss(given, impl.compute_target(given))
    assert float(value) == pytest.approx(float(critics.v_loss), rel=1e-5)
    assert float(jnp.sum(error**2) / BATCH) == pytest.approx(float(critics.q_loss), rel=1e-5)
    theirs_of_actor = impl.compute_actor_loss(given, impl.policy(given.observations))
    assert float(actor) == pytest.approx(float(theirs_of_actor.actor_loss), rel=1e-5)


def test_iql_takes_the_same_first_step_of_its_value_and_its_policy() -> None:
    """(Its critics not: d3rlpy's bootstrap from V as it was before the update, ours and the
    authors' from V as it is then.)"""
    impl, state = iql_pair()
    config = iql.IQLConfig(**{**CONFIG.iql.__dict__, "actor_decay_steps": 0})
    update = jax.jit(iql.update, static_argnames="config")
    state, _ = update(state, batch_of(0), jax.random.key(0), config)
    impl.inner_update(torch_batch(batch_of(0)), 0)
    assert_same_network(state.value, impl._modules.value_func, atol=1e-6)
    assert_same_network(state.actor.network, impl.policy, atol=1e-6)


class Noise:
    """Standard normal numbers in the place of PyTorch's."""

    def __init__(self, draws: Sequence[np.ndarray]) -> None:
        self._draws = list(draws)

    def __call__(self, shape: Any, dtype: Any, device: Any) -> Any:
        import torch

        return torch.tensor(self._draws.pop(0).reshape(shape), dtype=dtype)


def test_cql_has_the_same_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The actor's and the temperature's with the same noise; the conservative term with much
    noise, since its uniform actions are drawn otherwise."""
    impl = theirs("cql")
    state = cql.create(jax.random.key(0), OBSERVATION_DIM, ACTION_DIM, CONFIG.cql).agent
    copy_weights(state.actor.network, impl.policy)
    copy_critics(state.critics, impl._modules.q_funcs, impl._modules.targ_q_funcs)
    batch = batch_of(0)
    given = torch_batch(batch)
    noise = np.random.default_rng(0).normal(size=(BATCH, ACTION_DIM)).astype(np.float32)
    loss, metrics = sac.actor_loss(
        state.actor, state.critics, jnp.asarray(1.0), batch.observation, jnp.asarray(noise)
    )
    with monkeypatch.context() as patched:
        patched.setattr("torch.distributions.normal._standard_normal", Noise([noise]))
        other = impl.compute_actor_loss(given, impl.policy(given.observations))
    assert float(loss) == pytest.approx(float(other.actor_loss), rel=1e-5)
    temperature, _ = sac.temperature_loss(
        jnp.asarray(0.0), metrics["policy_entropy"], -float(ACTION_DIM)
    )
    assert float(temperature) == pytest.approx(float(other.temp_loss), rel=1e-5)

    number = 4_000
    impl._n_action_samples = number
    weighted = impl._compute_conservative_loss(
        given.observations, given.actions, given.next_observations, given.returns_to_go
    )
    # without its weight and its threshold, and as a mean over the samples
    gap = weighted.detach().numpy() / 5.0 + impl._alpha_threshold - np.log(3 * number)
    draws = jax.random.normal(jax.random.key(1), (3 * number, BATCH, ACTION_DIM))
    ours = jax.jit(cql.conservative_gap)(
        state.critics, batch, *cql.proposed_actions(state.actor, batch, draws)
    )
    np.testing.assert_allclose(ours, gap, atol=0.02)
    # the target, where the policy has one action: d3rlpy takes the mean action, ours a sample
    still = state.actor.network.biases[-1].at[ACTION_DIM:].set(-20.0)
    weight = state.actor.network.weights[-1].at[:, ACTION_DIM:].set(0.0)
    network = MLP(
        (*state.actor.network.weights[:-1], weight), (*state.actor.network.biases[:-1], still)
    )
    copy_weights(network, impl.policy)
    certain = sac.SACState(**{**state.__dict__, "actor": sac.Actor(network)})
    target = sac.critic_target(certain, batch, jnp.asarray(noise), 0.99, soft=False)
    expected = given.rewards + 0.99 * (1 - given.terminals) * impl.compute_target(given)
    np.testing.assert_allclose(target, expected.detach().numpy()[:, 0], atol=1e-5)
