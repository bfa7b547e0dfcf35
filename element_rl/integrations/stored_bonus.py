"""What a bonus for a replay and one for rollouts have in common: their sizes, a source of states,
warnings of a memory that stays empty, and their form on disk and in a pickle.

    FOLDER/bonus.safetensors     arrays; settings and spaces as JSON in its metadata
    FOLDER/memory-N/             an hnsw memory of N states; the file names the one it belongs to

The file is written last and at once: a folder holds the old bonus or the new one, whole. There is
no pickle in it.
"""

import json
import shutil
import tempfile
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from gymnasium import spaces
from jaxtyping import Float, PRNGKeyArray

from element_rl.envs.latents import LatentBox, LatentSettings
from element_rl.integrations.observations import StateFunction, StateSource
from element_rl.memory.hnsw import HnswMemory
from element_rl.rewards import check_intrinsic
from element_rl.rewards.expression import names_in
from element_rl.rewards.interface import HasMemory, latent_of
from element_rl.rewards.making import said
from element_rl.storage.files import FileError, json_text, read_arrays, write_arrays
from element_rl.storage.trees import arrays_to_tree, tree_to_arrays

FILE = "bonus.safetensors"
SPACES = ("observation_space", "action_space")


class StoredBonus(ABC):
    """A reward of the library beside somebody's learner."""

    rewarder: Any = None  # a reward, or one on rollouts; None before the first states are known
    state: Any = None  # of the rewarder
    observed: int = 0  # transitions so far
    host_memory: HnswMemory | None = None  # where the memory is not part of the state

    def _prepare(self, settings: dict[str, Any], states: StateFunction | None) -> None:
        """Checks and keeps the arguments of the constructor; `states` is an own function."""
        check_intrinsic(settings["reward"])
        for name in ("num_envs", "max_episode_steps", "total_steps"):
            if settings[name] is not None and settings[name] < 1:
                raise ValueError(f"{name} must be at least 1, got {settings[name]}.")
        if "inputs" in (settings["options"] or {}):
            raise ValueError(
                "inputs is a setting of element explore: here nobody knows the position of an "
                "episode's first observation. Put the position into the observations instead."
            )
        self.settings = settings | {"options": said(settings["reward"], settings["options"])}
        self.num_envs, self.action_space = settings["num_envs"], settings["action_space"]
        self.total_steps, self.max_episode_steps = (
            settings["total_steps"],
            settings["max_episode_steps"],
        )
        described = {name: settings[name] for name in ("env_id", "position", "seed")}
        self.source = StateSource(settings["observation_space"], states=states, **described)
        self._key: PRNGKeyArray = jax.random.key(settings["seed"])
        self._warned = False

    @abstractmethod
    def to_arrays(self) -> dict[str, np.ndarray]:
        """All that has changed since the beginning, but for a memory on the host."""

    @abstractmethod
    def restore(self, arrays: dict[str, np.ndarray], memory: HnswMemory | None) -> None:
        """The opposite of `to_arrays`."""

    @property
    def memory_size(self) -> int:
        """States in the lifelong memory; 0 for rewards that have none."""
        if self.state is None or not isinstance(self.rewarder, HasMemory):
            return 0
        return int(self.rewarder.memory_size(self.state))

    def warn_if_memory_is_empty(self) -> None:
        """Warns, once, if ELEMENT has remembered nothing so far; for the end of a run. `save` does
        it too."""
        if self._warned or self.observed == 0 or self.memory_size > 0:
            return
        if reason := self._why_empty(self.observed):
            self._warned = True
            warnings.warn(
                f"The lifelong memory is empty after {self.observed:,} steps, and only the "
                f"episodic reward was paid: {reason}. If the run ends here, give total_steps its "
                "true length, or leave it out.",
                stacklevel=3,
            )

    def save(self, folder: str | Path) -> None:
        """Writes everything but an own function for the states."""
        self.warn_if_memory_is_empty()
        _write(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path, states: StateFunction | None = None) -> Any:
        """What `save` wrote; `states` is the own function, where there was one."""
        return _read(cls, Path(folder), states)

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle holds the files, as bytes; an own function for the states goes by its name."""
        self.warn_if_memory_is_empty()
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            _write(self, folder)
            files = {
                str(path.relative_to(folder)): path.read_bytes()
                for path in folder.rglob("*")
                if path.is_file()
            }
        return _unpickled, (type(self), files, self.source.own)

    def _check_latent(self) -> None:
        """Refuses a reward that needs a latent where the observations have none, or another."""
        needed, space = latent_of(self.rewarder), self.settings["observation_space"]
        if needed is None:
            return
        told = space.latent if isinstance(space, LatentBox) else None
        if told is None or (told.dim, told.kind) != (needed.dim, needed.kind):
            has = (
                "its space does not say so"
                if told is None
                else f"its own is {told.kind}, {told.dim}"
            )
            raise ValueError(
                f"{self.settings['reward']} needs an environment that tells the agent a latent "
                f"({needed.kind}, {needed.dim}), and {has}: wrap it, as the last wrapper, with "
                f"element_rl.envs.latents.LatentObservation(env, dim={needed.dim}, "
                f"kind={needed.kind!r})."
            )

    def _warn_of_closed_windows(self) -> None:
        """Says so where nothing can be remembered in a run of this length."""
        if self.total_steps is not None and (reason := self._why_empty(self.total_steps)):
            self._warned = True
            warnings.warn(
                f"The lifelong memory stays empty in a run of {self.total_steps:,} steps: "
                f"{reason}. Give a smaller update_interval, or a larger update_steps, in options.",
                stacklevel=4,
            )

    def _extrinsic(self, rewards: Any, number: int) -> Float[np.ndarray, " N"]:
        """The environment's rewards, 0 where they are not given; refused where they are paid."""
        if rewards is None:
            if "extrinsic" in names_in(self.settings["reward"]):
                raise ValueError(
                    f"The reward {self.settings['reward']} pays the environment's rewards, and "
                    "none were given: give rewards too."
                )
            return np.zeros(number, np.float32)
        return np.asarray(rewards).reshape(-1).astype(np.float32)

    def _why_empty(self, steps: int) -> str:
        return self.rewarder.why_empty(steps) if isinstance(self.rewarder, HasMemory) else ""

    def _encoding_arrays(self, **counts: int) -> dict[str, np.ndarray]:
        """The encoding and numbers, as arrays."""
        counts |= {"observed": self.observed, "fitted": int(self.source.fitted)}
        arrays = {name: np.asarray(count, np.int64) for name, count in counts.items()}
        return arrays | tree_to_arrays(self.source.encoding, "encoding")

    def _restore_encoding(self, arrays: dict[str, np.ndarray]) -> None:
        self.observed = int(arrays["observed"])
        encoding = arrays_to_tree(self.source.encoding, under(arrays, "encoding"), "encoding")
        self.source.restore(encoding, bool(arrays["fitted"]))


def under(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin with `prefix/`."""
    return {name: array for name, array in arrays.items() if name.startswith(f"{prefix}/")}


def _write(bonus: StoredBonus, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {f"bonus/{name}": array for name, array in bonus.to_arrays().items()}
    settings = {name: value for name, value in bonus.settings.items() if name not in SPACES}
    for name in SPACES:
        settings[name] = _described(bonus.settings[name], arrays, name)
    memory = None
    if bonus.host_memory is not None:
        memory = f"memory-{len(bonus.host_memory)}"
        bonus.host_memory.save(folder / memory)
    metadata = {"settings": json_text(settings), "memory": json_text(memory)}
    write_arrays(folder / FILE, arrays, metadata)
    for other in folder.glob("memory-*"):
        if other.name != memory:
            shutil.rmtree(other)


def _read(kind: type[Any], folder: Path, states: StateFunction | None) -> Any:
    path = folder / FILE
    if not path.is_file():
        raise FileError(
            f"There is no bonus in {folder} (no {FILE}): save one there, or name another folder."
        )
    arrays, metadata = read_arrays(path)
    try:
        settings = json.loads(metadata["settings"])
        for name in ("options", "position"):  # JSON knows no tuples
            settings[name] = _with_tuples(settings[name])
        settings["options"] = said(settings["reward"], settings["options"], older=True)
        made = {name: _space(settings.pop(name), arrays, name) for name in SPACES}
        memory = json.loads(metadata["memory"])
        bonus = kind(**settings, **made, states=states)
        changed = {
            name.removeprefix("bonus/"): part for name, part in under(arrays, "bonus").items()
        }
        bonus.restore(changed, HnswMemory.load(folder / memory) if memory else None)
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(f"{path} holds no {kind.__name__} of this version ({error}).") from error
    return bonus


def _unpickled(kind: type[Any], files: dict[str, bytes], states: StateFunction | None) -> Any:
    with tempfile.TemporaryDirectory() as name:
        for file, content in files.items():
            path = Path(name) / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return _read(kind, Path(name), states)


def _described(space: spaces.Space, arrays: dict[str, np.ndarray], name: str) -> dict[str, Any]:
    """A space as JSON; its bounds go to the arrays."""
    if isinstance(space, spaces.Dict):
        parts = {
            key: _described(part, arrays, f"{name}/{key}") for key, part in space.spaces.items()
        }
        return {"kind": "Dict", "parts": parts}
    if isinstance(space, spaces.Box):
        arrays |= {f"{name}/low": space.low, f"{name}/high": space.high}
        told = {"latent": space.latent._asdict()} if isinstance(space, LatentBox) else {}
        return {"kind": "Box", "dtype": str(space.dtype), **told}
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"kind": "MultiDiscrete", "nvec": space.nvec.tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "MultiBinary", "shape": list(space.shape)}
    raise ValueError(f"The space {space} cannot be stored.")


def _space(stored: dict[str, Any], arrays: dict[str, np.ndarray], name: str) -> spaces.Space:
    """The opposite of `_described`."""
    kind = stored["kind"]
    if kind == "Dict":
        parts = stored["parts"].items()
        return spaces.Dict({key: _space(part, arrays, f"{name}/{key}") for key, part in parts})
    if kind == "Box":
        bounds = arrays[f"{name}/low"], arrays[f"{name}/high"]
        if "latent" not in stored:
            return spaces.Box(*bounds, dtype=np.dtype(stored["dtype"]).type)
        latent = LatentSettings(**stored["latent"])
        own = [bound[: -latent.dim] for bound in bounds]
        return LatentBox(spaces.Box(*own, dtype=np.dtype(stored["dtype"]).type), latent)
    if kind == "Discrete":
        return spaces.Discrete(stored["n"], start=stored["start"])
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(stored["nvec"])
    return spaces.MultiBinary(stored["shape"])


def _with_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_tuples(part) for name, part in value.items()}
    return tuple(value) if isinstance(value, list) else value
