"""A population of agents on the accelerators of a machine.

Agents know nothing of each other: every array of a run has the population axis P first, and no
program adds up along it. So P agents are shared out over D devices, P / D consecutive ones to each,
and every device computes what it would compute with its own agents alone. Nothing is sent from one
device to another, and nothing of a replay ever leaves its own.

    devices = Devices.of(agents=8, wanted=4)
    state = devices.put(state)                           leaves [P, ...], shared out
    step = devices.program(function, (0, 0, None))       `jax.jit`; where each argument has P
    state = step(state, batches, number)

With one device `put` gives back what it was given and a program is `jax.jit` of the function.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXIS = "population"


@dataclass(frozen=True)
class Devices:
    """Those that the agents of a run are shared out over, in order."""

    devices: tuple[jax.Device, ...]

    @staticmethod
    def of(agents: int, wanted: int | None = None) -> "Devices":
        """`number_of_devices` of this machine's."""
        return Devices(tuple(jax.devices()[: number_of_devices(agents, wanted)]))

    def __len__(self) -> int:
        return len(self.devices)

    @property
    def several(self) -> bool:
        return len(self) > 1

    def program(
        self,
        function: Callable[..., Any],
        axes: Sequence[int | None],
        donate: Sequence[int] = (),
        static: Sequence[str] = (),
    ) -> Callable[..., Any]:
        """The function, compiled. On several devices each runs it with its own agents.

        axes: which axis of each positional argument (of all its leaves) is P; None: it has none,
        and every device is given all of it. P is the first axis of all results. `static` are names
        of further arguments, which are given by name.
        """
        if not self.several:
            return jax.jit(function, static_argnames=tuple(static), donate_argnums=tuple(donate))
        specs = tuple(_spec(axis) for axis in axes)

        def shared_out(*arguments: Any, **named: Any) -> Any:
            own = jax.shard_map(
                partial(function, **named),
                mesh=self._mesh,
                in_specs=specs[: len(arguments)],
                out_specs=_spec(0),
                # loops over agents begin with what all devices have alike
                check_vma=False,
            )
            return own(*arguments)

        return jax.jit(shared_out, static_argnames=tuple(static), donate_argnums=tuple(donate))

    def put(self, tree: Any) -> Any:
        """Leaves [P, ...], every agent's part on the device of that agent."""
        return jax.device_put(tree, self._sharding) if self.several else tree

    def made(self, make: Callable[[], Any]) -> Any:
        """The tree [P, ...] that `make` makes, which is never whole on one device."""
        return jax.jit(make, out_shardings=self._sharding)() if self.several else make()

    def parts(self, tree: Any) -> list[Any]:
        """The leaves [P, ...] in D parts [P / D, ...], each on its device."""
        if not self.several:
            return [tree]
        leaves, kind = jax.tree.flatten(self.put(tree))
        found = [_shards(leaf, self.devices) for leaf in leaves]
        return [jax.tree.unflatten(kind, part) for part in zip(*found, strict=True)]

    def joined(self, parts: Sequence[Any]) -> Any:
        """The opposite of `parts`; nothing is moved."""
        if not self.several:
            return parts[0]

        def join(*leaves: jax.Array) -> jax.Array:
            shape = (len(leaves) * leaves[0].shape[0], *leaves[0].shape[1:])
            return jax.make_array_from_single_device_arrays(shape, self._sharding, list(leaves))

        return jax.tree.map(join, *parts)

    def place_of(self, agent: int, agents: int) -> tuple[int, int]:
        """Which device an agent of so many is on, and which of that device's agents it is."""
        return divmod(agent, agents // len(self))

    @property
    def _mesh(self) -> Mesh:
        return Mesh(np.array(self.devices), (AXIS,))

    @property
    def _sharding(self) -> NamedSharding:
        return NamedSharding(self._mesh, _spec(0))


def number_of_devices(agents: int, wanted: int | None = None) -> int:
    """How many devices are used for so many agents.

    As many as are `wanted`, or a ValueError that says why not. Unless someone wants a number: of
    this machine's accelerators as many as can have the same number of agents each; of CPUs one.
    """
    there = len(jax.devices())
    if wanted is None:
        most = 1 if jax.default_backend() == "cpu" else there
        return max(number for number in range(1, most + 1) if agents % number == 0)
    if wanted < 1:
        raise ValueError(f"--devices must be at least 1, got {wanted}.")
    if wanted > there:
        raise ValueError(
            f"--devices {wanted} is more than the {there} that JAX sees on this machine: leave it "
            "out to use what is there."
        )
    if agents % wanted:
        fitting = [number for number in range(1, there + 1) if agents % number == 0]
        raise ValueError(
            f"--devices {wanted} cannot have the same number of {agents} agents each: take "
            f"{' or '.join(map(str, fitting))}, or a multiple of {wanted} --seeds."
        )
    return wanted


def _spec(axis: int | None) -> PartitionSpec:
    return PartitionSpec() if axis is None else PartitionSpec(*(None,) * axis, AXIS)


def _shards(leaf: jax.Array, devices: Sequence[jax.Device]) -> list[jax.Array]:
    """The part of each device."""
    of_device = {shard.device: shard.data for shard in leaf.addressable_shards}
    return [jnp.asarray(of_device[device]) for device in devices]
