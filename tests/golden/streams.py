"""Golden streams: what tiny runs of every command that trains give, number by number.

    python tests/golden/streams.py record OUT.json [NAME …]     run all of them, or some
    python tests/golden/streams.py compare OLD.json NEW.json    exit code 1 where they differ

A change that should not change any number is done when both files are equal, bit for bit, on one
machine: record before it and after it. Streams use the command line and public names alone, so that
the same file runs before and after modules have moved. `test_golden.py` keeps a few of them.
"""

import contextlib
import hashlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

REWARD_OPTIONS = {
    "rnd": ("feature_dim=8", "target_sizes=[16]", "predictor_sizes=[16]"),
    "icm": ("feature_dim=8", "encoder_sizes=[16]", "inverse_sizes=[16]", "forward_sizes=[16]"),
    "ngu": (
        "embedding_dim=8",
        "encoder_sizes=[16]",
        "head_sizes=[16]",
        "rnd_sizes=[16]",
        "rnd_output_dim=8",
    ),
    "e3b": ("feature_dim=8", "encoder_sizes=[16]", "head_sizes=[16]"),
    "disagreement": ("num_models=3", "hidden_sizes=[16]"),
    "ride": ("feature_dim=8", "encoder_sizes=[16]", "inverse_sizes=[16]", "forward_sizes=[16]"),
    "noveld": ("feature_dim=8", "target_sizes=[16]", "predictor_sizes=[16]"),
    "pseudo-counts": ("table_size=4096", "calibration_steps=50"),
    "re3": ("pool_size=64",),
    "rise": ("pool_size=64",),
    "apt": ("pool_size=64", "feature_dim=8", "hidden_sizes=[16]"),
}
EXPLORE = (
    *(
        "--steps",
        "800",
        "--seeds",
        "2",
        "--replay-size",
        "1500",
        "--chunk-steps",
        "40",
        "--log-every",
        "200",
    ),
    *(
        "--checkpoint-every",
        "400",
        "--update-interval",
        "200",
        "--update-steps",
        "100",
        "--workers",
        "0",
    ),
    *(
        "--random-seeds",
        "1",
        "--no-figures",
        "--sac.hidden-sizes",
        "16",
        "16",
        "--sac.batch-size",
        "16",
    ),
    *("--sac.learn-start", "200"),
)
SHORT = ("max_episode_steps=100", "terminate_when_unhealthy=true")
ROOMS = (
    *(
        "Rooms-v0",
        "--steps",
        "120",
        "--seeds",
        "2",
        "--workers",
        "0",
        "--state-dim",
        "3",
        "--no-figures",
    ),
    *("--checkpoint-every", "60", "--random-seeds", "1", "--env-options", "max_episode_steps=30"),
    *("--a3c.channels", "2", "2", "--a3c.hidden-size", "8", "--a3c.local-steps", "10"),
)
TIMED = (
    "env_steps_per_second",
    "updates_per_second",
    "wall_seconds",
    "seconds",
)  # never the same twice
PLACES = ("versions", "commit", "hardware", "folder", "path", "source", "run", "out", *TIMED)

Stream = Callable[[Path], dict[str, Any]]


def command(*arguments: str) -> str:
    """Run `element …` in this process; what it printed."""
    from element_rl.cli import main

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = main(list(arguments))
    assert code == 0, (
        f"element {' '.join(arguments)} ended with {code}: {printed.getvalue()[-2000:]}"
    )
    return printed.getvalue()


def explored(
    folder: Path, *arguments: str, env: str = "Hopper-v5", options: Sequence[str] = SHORT
) -> dict[str, Any]:
    """A tiny run of `element explore`, evaluated."""
    command(
        "explore",
        env,
        *EXPLORE,
        *arguments,
        "--env-options",
        *options,
        "--out",
        str(folder / "run"),
    )
    if "random" not in arguments:
        command("evaluate", str(folder / "run"), "--episodes", "1", "--workers", "0")
    return contents(folder / "run")


def with_reward(name: str) -> Stream:
    options = ("--reward-options", *REWARD_OPTIONS[name]) if name in REWARD_OPTIONS else ()
    return lambda folder: explored(folder, "--reward", name, *options)


def resumed(folder: Path) -> dict[str, Any]:
    """A run that goes on from its checkpoint to more steps."""
    explored(folder)
    command(
        "explore", "Hopper-v5", "--resume", str(folder / "run"), "--steps", "1200", "--no-figures"
    )
    return contents(folder / "run")


def on_rooms(*arguments: str) -> Stream:
    def stream(folder: Path) -> dict[str, Any]:
        command("on-policy", *ROOMS, *arguments, "--out", str(folder / "run"))
        return contents(folder / "run")

    return stream


def collected_and_learned(folder: Path) -> dict[str, Any]:
    """A dataset of a run's policies, one of its replay, CQL and cloning on them."""
    explored(folder)
    run, root, found = str(folder / "run"), folder / "datasets", {}
    shared = ("--out", str(root), "--workers", "0")
    command(
        "collect", run, "--steps", "400", "--dataset", "hopper/acted-v0", "--export", "npz", *shared
    )
    command(
        "collect", run, "--from-replay", "--steps", "400", "--dataset", "hopper/replay-v0", *shared
    )
    found |= {f"dataset/{name}": value for name, value in contents(root).items()}
    for algorithm in ("cql", "bc"):
        out = folder / algorithm
        sizes = (f"--{algorithm}.hidden-sizes", "8", f"--{algorithm}.batch-size", "16")
        command(
            *(
                "offline",
                "hopper/acted-v0",
                "--root",
                str(root),
                "--algorithm",
                algorithm,
                "--steps",
                "60",
            ),
            *(
                "--chunk-updates",
                "20",
                "--evaluate-every",
                "20",
                "--episodes",
                "1",
                "--workers",
                "0",
            ),
            *("--no-figures", "--out", str(out), *sizes),
        )
        found |= {f"{algorithm}/{name}": value for name, value in contents(out).items()}
    return found


def collected_and_learned_on_rooms(folder: Path) -> dict[str, Any]:
    """Frames of Rooms-v0 as a dataset, and discrete CQL and cloning on it."""
    on_rooms("--reward", "extrinsic")(folder)
    root, found = folder / "datasets", {}
    shared = ("--out", str(root), "--workers", "0")
    command("collect", str(folder / "run"), "--steps", "60", "--dataset", "rooms/acted-v0", *shared)
    found |= {f"dataset/{name}": value for name, value in contents(root).items()}
    for algorithm in ("cql", "bc"):
        command(
            *(
                "offline",
                "rooms/acted-v0",
                "--root",
                str(root),
                "--algorithm",
                algorithm,
                "--steps",
                "40",
            ),
            *(
                "--chunk-updates",
                "20",
                "--evaluate-every",
                "20",
                "--episodes",
                "1",
                "--workers",
                "0",
            ),
            *("--no-figures", "--out", str(folder / algorithm), "--frame-stack", "2"),
            *("--discrete-cql.hidden-sizes", "8", "--discrete-cql.batch-size", "8"),
            *("--bc.hidden-sizes", "8", "--bc.batch-size", "8"),
        )
        found |= {
            f"{algorithm}/{name}": value for name, value in contents(folder / algorithm).items()
        }
    return found


def fine_tuned(folder: Path) -> dict[str, Any]:
    explored(folder)
    command(
        *(
            "finetune",
            str(folder / "run"),
            "--out",
            str(folder / "tuned"),
            "--steps",
            "600",
            "--episodes",
            "1",
        ),
        *(
            "--critic-warmup",
            "40",
            "--workers",
            "0",
            "--log-every",
            "200",
            "--checkpoint-every",
            "300",
        ),
        *("--anchor", "1", "--anchor-halflife", "100", "--replay", "kept"),
    )
    return contents(folder / "tuned")


def fine_tuned_on_rooms(folder: Path) -> dict[str, Any]:
    on_rooms("--reward", "extrinsic")(folder)
    command(
        *(
            "finetune",
            str(folder / "run"),
            "--out",
            str(folder / "tuned"),
            "--steps",
            "120",
            "--episodes",
            "1",
        ),
        *("--workers", "0", "--checkpoint-every", "60"),
    )
    return contents(folder / "tuned")


def pretrained(folder: Path) -> dict[str, Any]:
    command(
        *(
            "pretrain-encoder",
            "Rooms-v0",
            "--steps",
            "400",
            "--workers",
            "0",
            "--epochs",
            "2",
            "--no-figures",
        ),
        *(
            "--epoch-updates",
            "5",
            "--batch-size",
            "8",
            "--entropy-threshold",
            "0",
            "--probe-frames",
            "100",
        ),
        *(
            "--env-options",
            "max_episode_steps=40",
            "--network.hidden",
            "16",
            "--network.channels",
            "4",
            "4",
            "8",
        ),
        *("--out", str(folder / "encoder")),
    )
    return contents(folder / "encoder")


def sb3_buffer(folder: Path) -> dict[str, Any]:
    """SAC of Stable-Baselines3 with ELEMENT, and with RND beside the task's reward, on two
    environments."""
    import gymnasium
    import torch
    from stable_baselines3 import SAC
    from stable_baselines3.common.vec_env import DummyVecEnv

    from element_rl.integrations.sb3 import IntrinsicReplayBuffer

    torch.set_num_threads(1)
    found = {}
    for name, more in (
        ("element", {}),
        ("rnd", {"feature_dim": 8, "target_sizes": (16,), "predictor_sizes": (16,)}),
    ):
        envs = DummyVecEnv([lambda: gymnasium.make("Hopper-v5", max_episode_steps=60)] * 2)
        envs.seed(0)
        options = {
            "reward": name,
            "env_id": "Hopper-v5",
            "total_steps": 600,
            "max_episode_steps": 60,
        }
        options["options"] = more
        agent = SAC(
            *("MlpPolicy", envs),
            **{
                "replay_buffer_class": IntrinsicReplayBuffer,
                "replay_buffer_kwargs": options,
                "buffer_size": 2000,
            },
            **{
                "learning_starts": 100,
                "batch_size": 16,
                "policy_kwargs": {"net_arch": [8]},
                "seed": 0,
            },
        )
        agent.learn(600)
        found |= {
            f"{name}/{key}": digest(value.numpy())
            for key, value in agent.policy.state_dict().items()
        }
    return found


def sb3_callback(folder: Path) -> dict[str, Any]:
    """PPO of Stable-Baselines3 with ELEMENT and with NGU."""
    import gymnasium
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv

    from element_rl.integrations.sb3 import IntrinsicCallback

    torch.set_num_threads(1)
    found = {}
    for name in ("element", "ngu"):
        envs = DummyVecEnv([lambda: gymnasium.make("Hopper-v5", max_episode_steps=60)] * 2)
        envs.seed(0)
        agent = PPO(
            "MlpPolicy", envs, n_steps=64, batch_size=32, policy_kwargs={"net_arch": [8]}, seed=0
        )
        agent.learn(256, callback=IntrinsicCallback(name))
        found |= {
            f"{name}/{key}": digest(value.numpy())
            for key, value in agent.policy.state_dict().items()
        }
    return found


def smoke_study(folder: Path) -> dict[str, Any]:
    out = folder / "study"
    command(
        *(
            "study",
            "coverage",
            "--scale",
            "smoke",
            "--envs",
            "PointMaze",
            "--methods",
            "element",
            "random",
        ),
        *("--steps", "800", "--out", str(out)),
    )
    return {name: value for name, value in contents(out).items() if "/log" not in name}


STREAMS: dict[str, Stream] = {
    **{
        f"explore-{name}": with_reward(name)
        for name in ("element", *REWARD_OPTIONS, "extrinsic", "random")
    },
    "explore-renyi": lambda folder: explored(folder, "--estimator", "renyi", "--memory", "exact"),
    "explore-knn": lambda folder: explored(folder, "--estimator", "knn", "--memory", "hnsw"),
    "explore-printed": lambda folder: explored(
        folder, "--credit", "episode", "--memory", "graph", "--length-weighted"
    ),
    "explore-standard": lambda folder: explored(
        folder, "--normalisation", "standard", "--lifelong-estimator", "kde"
    ),
    "explore-running": lambda folder: explored(
        folder, "--normalisation", "running", "--lifelong-estimator", "renyi2"
    ),
    "explore-scaled": lambda folder: explored(folder, "--reward", "re3", "--recent-scale"),
    "explore-ant": lambda folder: explored(
        folder, env="Ant-v5", options=("max_episode_steps=100",)
    ),
    "explore-workers": lambda folder: explored(folder, "--workers", "2"),
    "explore-resumed": resumed,
    "on-policy-element": on_rooms("--reward", "element"),
    "on-policy-rnd": on_rooms("--reward", "rnd", "--extrinsic-weight", "0.5"),
    "on-policy-extrinsic": on_rooms("--reward", "extrinsic"),
    "collect-offline": collected_and_learned,
    "collect-offline-rooms": collected_and_learned_on_rooms,
    "finetune": fine_tuned,
    "finetune-rooms": fine_tuned_on_rooms,
    "pretrain-encoder": pretrained,
    "sb3-buffer": sb3_buffer,
    "sb3-callback": sb3_callback,
    "study": smoke_study,
}


def contents(folder: Path) -> dict[str, Any]:
    """What a folder holds, without times and places: one entry per array or number."""
    found: dict[str, Any] = {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(file.relative_to(folder))
        if "/resume/" in name or name.startswith("resume/"):
            continue
        for key, value in _entries(file):
            found[f"{name}:{key}"] = value
    return found


def _entries(file: Path) -> Iterator[tuple[str, Any]]:
    if file.suffix == ".safetensors":
        from safetensors.numpy import load_file

        yield from ((name, digest(array)) for name, array in sorted(load_file(file).items()))
    elif file.suffix == ".npz":
        with np.load(file) as arrays:
            yield from (
                (name, digest(arrays[name])) for name in sorted(arrays.files) if name != "metadata"
            )
    elif file.suffix == ".hdf5":
        import h5py

        datasets: dict[str, Any] = {}
        with h5py.File(file) as stored:
            stored.visititems(
                lambda name, item: (
                    datasets.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None
                )
            )
        numbers = {name: np.asarray(array) for name, array in datasets.items()}
        yield from (
            (name, digest(array))
            for name, array in sorted(numbers.items())
            if array.dtype.kind in "biuf"
        )
    elif file.name == "metrics.csv":
        header, *rows = [line.split(",") for line in file.read_text().splitlines()]
        for index, column in enumerate(header):
            if column not in TIMED:
                yield column, [row[index] for row in rows]
    elif file.name in ("summary.json", "evaluation.json", "comparison.json", "encoder.json"):
        yield "json", _without_places(json.loads(file.read_text()))


def _without_places(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_places(part) for name, part in value.items() if name not in PLACES}
    return [_without_places(part) for part in value] if isinstance(value, list) else value


def digest(array: np.ndarray) -> dict[str, Any]:
    """An array's shape and type, a hash of its bytes, and its sum for the eye."""
    array = np.ascontiguousarray(array)
    total = (
        float(np.sum(np.nan_to_num(array.astype(np.float64))))
        if array.dtype.kind in "biuf"
        else None
    )
    hashed = hashlib.sha256(array.tobytes()).hexdigest()[:16]
    return {"shape": list(array.shape), "dtype": str(array.dtype), "sha256": hashed, "sum": total}


def record(out: Path, names: Sequence[str] = ()) -> dict[str, Any]:
    """The streams of these names, or all, each in a folder of its own that is removed.

    The file is written after every stream, and streams that it has already are not run again.
    """
    found: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    for name in names or STREAMS:
        if name in found:
            continue
        with tempfile.TemporaryDirectory() as folder:
            print(name, file=sys.stderr, flush=True)
            found[name] = STREAMS[name](Path(folder))
        out.write_text(json.dumps(found, indent=1))
    return found


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """One line for every entry that differs, or that only one side has."""
    lines = []
    for stream in sorted({*old, *new}):
        before, after = old.get(stream, {}), new.get(stream, {})
        for name in sorted({*before, *after}):
            if before.get(name) != after.get(name):
                lines.append(
                    f"{stream} {name}: {before.get(name, 'absent')} → {after.get(name, 'absent')}"
                )
    return lines


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("MUJOCO_GL", "disable")
    verb, *arguments = sys.argv[1:]
    if verb == "record":
        record(Path(arguments[0]), arguments[1:])
    else:
        old, new = (json.loads(Path(path).read_text()) for path in arguments)
        found = differences(old, new)
        print("\n".join(line[:300] for line in found) or "equal")
        sys.exit(1 if found else 0)
