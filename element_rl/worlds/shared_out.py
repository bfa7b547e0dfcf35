"""Worlds of a population that is shared out over several devices: a `DeviceCollector` on each, for
the agents that live there.

Each has programs of its own, traced on its own device, and not one program for all of them: MuJoCo
Warp captures a CUDA graph for every traced call, on the device that comes to it first, and keeps
its arrays per device. All are started before any is waited for. Chunks are put together without
moving what stays on the devices; snapshots are those of one device, so that a run can be continued
with more devices or fewer.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Float32, Int, Integer

from element_rl.acting.collector import Chunk
from element_rl.population import Devices
from element_rl.worlds.collector import DeviceCollector
from element_rl.worlds.contract import Worlds


class SharedOutCollector:
    """A `Collector` on several devices; see the head of this module."""

    on_device = True

    def __init__(
        self,
        worlds: Worlds,
        agent_seeds: Sequence[int],
        chunk_steps: int,
        num_envs: int,
        devices: Devices,
    ) -> None:
        own = len(agent_seeds) // len(devices)
        self.spec, self.devices = worlds.spec, devices
        self._parts = [
            DeviceCollector(worlds, agent_seeds[first : first + own], chunk_steps, num_envs, first)
            for first in range(0, len(agent_seeds), own)
        ]
        self._begun = False

    @property
    def first_end(self) -> int:
        """Steps of an agent after which one of its episodes is over for certain."""
        return self._parts[0].first_end

    def start(
        self, chunk_index: int, parameters: Mapping[str, Any] | Literal["as set"] | None
    ) -> None:
        told: Sequence[Any] = [parameters] * len(self.devices)
        if isinstance(parameters, Mapping):
            told = self.devices.parts(dict(parameters))
        for device, part, own in zip(self.devices.devices, self._parts, told, strict=True):
            with jax.default_device(device):
                part.start(chunk_index, own)
                if not self._begun:  # programs are traced, and graphs captured, one at a time
                    jax.block_until_ready(part.snapshot())
        self._begun = True

    def set_parameters(self, parameters: Mapping[str, Any]) -> None:
        for part, own in zip(self._parts, self.devices.parts(dict(parameters)), strict=True):
            part.set_parameters(own)

    def wait(self) -> Chunk:
        chunks = [vars(part.wait()) for part in self._parts]
        return Chunk(**{name: self._joined([own[name] for own in chunks]) for name in chunks[0]})

    def _joined(self, parts: Sequence[Any]) -> Any:
        on_host = isinstance(parts[0], np.ndarray)
        return np.concatenate(parts) if on_host else self.devices.joined(parts)

    def resume(
        self,
        episode_indices: Sequence[int] | Integer[np.ndarray, " L"],
        actions: Sequence[Float[np.ndarray, "_ A"]],
    ) -> Float32[np.ndarray, "L O"]:
        return self._parts[0].resume(episode_indices, actions)

    def snapshot(self) -> Any:
        """Where the worlds are, on the first device."""
        first = self.devices.devices[0]
        streams = []
        for device, part in zip(self.devices.devices, self._parts, strict=True):
            with jax.default_device(device):
                streams.append(jax.device_put(part.snapshot(), first))
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *streams)

    def restore(self, stream: Any) -> None:
        """Go on from a snapshot."""
        rows = len(stream.steps) // len(self._parts)
        for index, part in enumerate(self._parts):
            own = slice(index * rows, (index + 1) * rows)
            device = self.devices.devices[index]
            part.restore(
                jax.tree.map(lambda leaf, own=own, on=device: jax.device_put(leaf[own], on), stream)
            )

    def faults(self) -> Int[np.ndarray, " P"]:
        """How often the physics of each agent's worlds has failed."""
        return np.concatenate([part.faults() for part in self._parts])

    def close(self) -> None:
        for part in self._parts:
            part.close()
