"""Trees come back bit for bit, and what does not fit is named."""

from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from element_rl.storage.files import read_arrays, write_arrays
from element_rl.storage.trees import arrays_to_tree, as_long_as, tree_to_arrays


class State(NamedTuple):
    network: eqx.nn.MLP
    optimiser: optax.OptState
    key: jax.Array
    step: int
    done: np.ndarray
    rate: float
    training: bool


def make_state(seed: int) -> State:
    keys = jax.random.split(jax.random.key(seed), 3)
    networks = eqx.filter_vmap(lambda key: eqx.nn.MLP(3, 2, 4, 1, key=key))(keys)
    optimiser = optax.adam(1e-3).init(eqx.filter(networks, eqx.is_array))
    return State(networks, optimiser, keys, seed, np.array([seed % 2 == 0]), seed / 3, seed > 3)


def test_trees_round_trip_bit_for_bit(tmp_path: Path) -> None:
    state, template = make_state(7), make_state(0)
    arrays = tree_to_arrays(state, "agent")
    assert arrays["agent/network/layers/0/weight"].shape == (3, 4, 3)
    assert arrays["agent/step"].shape == ()
    write_arrays(tmp_path / "a.safetensors", arrays | {"other": np.zeros(1)})
    restored = arrays_to_tree(template, read_arrays(tmp_path / "a.safetensors")[0], "agent")
    assert jax.tree.structure(restored) == jax.tree.structure(state)
    assert (restored.step, restored.rate, restored.training) == (7, 7 / 3, True)
    assert isinstance(restored.done, np.ndarray)
    assert jax.random.key_impl(restored.key) == jax.random.key_impl(state.key)
    for name, array in tree_to_arrays(restored, "agent").items():
        assert (array.shape, array.dtype) == (arrays[name].shape, arrays[name].dtype)
        assert array.tobytes() == arrays[name].tobytes()


def test_a_tree_of_one_leaf() -> None:
    assert list(tree_to_arrays(jnp.ones(2))) == ["leaf"]
    arrays = tree_to_arrays(jnp.ones(2), "visits")
    assert list(arrays) == ["visits"]
    np.testing.assert_array_equal(arrays_to_tree(jnp.zeros(2), arrays, "visits"), [1, 1])


def test_restored_trees_can_be_donated() -> None:
    arrays = {"leaf": np.zeros(1024, np.float32)}
    restored = arrays_to_tree(jnp.ones(1024), arrays)
    jax.jit(lambda x: x + 1, donate_argnums=0)(restored).block_until_ready()
    assert (arrays["leaf"] == 0).all()


def test_trees_that_do_not_fit_are_named() -> None:
    arrays = tree_to_arrays({"a": jnp.ones((2, 3)), "b": jnp.ones(4)}, "net")
    with pytest.raises(
        ValueError, match=r"array net/a is float32\[2, 3\] where float32\[2, 5\] is needed"
    ):
        arrays_to_tree({"a": jnp.ones((2, 5)), "b": jnp.ones(4)}, arrays, "net")
    with pytest.raises(ValueError, match=r"array net/b is float32\[4\] where int32\[4\] is needed"):
        arrays_to_tree({"a": jnp.ones((2, 3)), "b": jnp.ones(4, jnp.int32)}, arrays, "net")
    with pytest.raises(ValueError, match=r"lack net/c:"):
        arrays_to_tree({"a": jnp.ones((2, 3)), "b": jnp.ones(4), "c": jnp.ones(1)}, arrays, "net")
    with pytest.raises(ValueError, match=r"have net/b too many"):
        arrays_to_tree({"a": jnp.ones((2, 3))}, arrays, "net")
    with pytest.raises(ValueError, match=r"both called 'a/b'"):
        tree_to_arrays({"a": {"b": jnp.ones(1)}, "a/b": jnp.ones(1)})


def test_a_template_is_as_long_as_what_outgrew_it() -> None:
    """Memories only, and along one axis; what is shorter, or of another shape, stays to be padded
    or refused."""
    template = {
        "memory": {"states": jnp.ones((2, 4, 3)), "size": jnp.zeros(2, jnp.int32)},
        "other": jnp.zeros((2, 4)),
    }

    def shape_of(shape: tuple[int, ...]) -> tuple[int, ...]:
        stored = {"t/memory/states": np.zeros(shape), "t/other": np.zeros((2, 9))}
        made = as_long_as(template, stored, "t")
        assert made["other"].shape == (2, 4)
        assert made["memory"]["size"].shape == (2,)
        return made["memory"]["states"].shape

    assert shape_of((2, 9, 3)) == (2, 9, 3)
    for other in ((2, 4, 3), (2, 3, 3), (2, 9, 4), (9, 3)):
        assert shape_of(other) == (2, 4, 3)
