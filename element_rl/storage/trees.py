"""JAX pytrees as named arrays, such as checkpoints hold, and back.

    arrays = tree_to_arrays(agent, "agent")  # {"agent/layers/0/weight": ..., ...}
    agent = arrays_to_tree(template, arrays, "agent")

What does not fit the template is named in a `ValueError` of one sentence.
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from element_rl.storage.files import listed


def tree_to_arrays(tree: Any, prefix: str = "") -> dict[str, np.ndarray]:
    """Arrays of a JAX pytree under the names of their places, such as `agent/layers/0/weight`.

    Python numbers become arrays without axes and PRNG keys their data; functions, strings and other
    leaves are left out, for `arrays_to_tree` to take from its template. On the CPU the arrays may
    share memory with the tree.
    """
    arrays: dict[str, np.ndarray] = {}
    for name, leaf in _named_leaves(tree, prefix):
        if _is_stored(leaf):
            if name in arrays:
                raise ValueError(f"Two leaves of the tree are both called {name!r}: rename a key.")
            arrays[name] = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
    return arrays


def arrays_to_tree(template: Any, arrays: Mapping[str, np.ndarray], prefix: str = "") -> Any:
    """The tree that `tree_to_arrays` took apart; shapes, dtypes and what is no array come from
    `template`."""
    names_and_leaves = _named_leaves(template, prefix)
    expected = {name for name, leaf in names_and_leaves if _is_stored(leaf)}
    present = {
        name for name in arrays if not prefix or name == prefix or name.startswith(f"{prefix}/")
    }
    if missing := sorted(expected - present):
        raise ValueError(
            f"The stored arrays lack {listed(missing)}: they belong to another model or version."
        )
    if surplus := sorted(present - expected):
        raise ValueError(
            f"The stored arrays have {listed(surplus)} too many: they belong to another model or "
            "version."
        )
    leaves = [
        _restored(name, leaf, arrays) if name in expected else leaf
        for name, leaf in names_and_leaves
    ]
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def as_long_as(
    template: Any, arrays: Mapping[str, np.ndarray], prefix: str, grows: str = "memory/"
) -> Any:
    """The template with room for stored arrays that have outgrown it: memories, which are leaves
    with `grows` in their names. A leaf that is shorter in one axis is padded there with zeros."""

    def padded(name: str, leaf: Any) -> Any:
        stored = arrays.get(name)
        if grows not in name or stored is None or stored.ndim != leaf.ndim:
            return leaf
        more = [have - want for have, want in zip(stored.shape, leaf.shape, strict=True)]
        if sorted(more)[:-1] != [0] * (len(more) - 1) or max(more, default=0) <= 0:
            return leaf
        return jax.numpy.pad(leaf, [(0, extra) for extra in more])

    leaves = [padded(name, leaf) for name, leaf in _named_leaves(template, prefix)]
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def _restored(name: str, leaf: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    wanted = np.asarray(leaf) if isinstance(leaf, bool | int | float) else leaf
    wanted = jax.random.key_data(leaf) if _is_key(leaf) else wanted
    stored = arrays[name]
    if stored.shape != wanted.shape or stored.dtype != wanted.dtype:
        raise ValueError(
            f"The stored array {name} is {stored.dtype}{list(stored.shape)} where "
            f"{wanted.dtype}{list(wanted.shape)} is needed: it belongs to another model or version."
        )
    if isinstance(leaf, bool | int | float):
        return type(leaf)(stored.item())
    if isinstance(leaf, np.ndarray | np.generic):
        return stored.copy()[()] if isinstance(leaf, np.generic) else stored.copy()
    # A copy: a JAX array that borrowed NumPy's memory could not be donated.
    restored = jax.numpy.array(stored)
    sharding = getattr(leaf, "sharding", None)  # shapes alone have none
    if sharding is not None and len(sharding.device_set) > 1:
        restored = jax.device_put(restored, sharding)  # one leaf at a time is whole on one device
    return (
        jax.random.wrap_key_data(restored, impl=jax.random.key_impl(leaf))
        if _is_key(leaf)
        else restored
    )


def _named_leaves(tree: Any, prefix: str) -> list[tuple[str, Any]]:
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]
    return [
        ("/".join(filter(None, (prefix, name))) or "leaf", leaf)
        for name, (_, leaf) in zip(names, leaves, strict=True)
    ]


def _is_stored(leaf: Any) -> bool:
    return isinstance(leaf, bool | int | float) or (
        hasattr(leaf, "shape") and hasattr(leaf, "dtype")
    )


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
