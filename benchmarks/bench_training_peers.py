"""How fast is training beside the libraries one would use instead? One agent on Ant-v5, one update
per environment step.

    ours, extrinsic      plain SAC of this library
    ours, ELEMENT        the full reward, with so many remembered states and 1M stored notes
    SBX SAC              JAX; as it comes (a step, an update), and 64 steps then 64 updates in one
                         call, as ours does
    SB3 SAC              Stable-Baselines3, PyTorch, with two threads, as it comes on two cores, and
                         with one
    SB3 SAC + kNN        the same with an RE3-style bonus: at every gradient step the rewards of the
                         batch are replaced by log(1 + ‖distances to the 3 nearest remembered
                         states‖), by brute force (torch.cdist and topk)

All have the same networks (3×256 ReLU, two critics), batch 128, learning rates 3e-4, a learned
temperature, the same environment (27-D) and the same cores. Each contender lives in a process of
its own, is warmed up, and then sleeps until it is told to train for a slice; the slices take turns,
so that whatever else the machine does hits all alike. A slice of ours holds a whole update window
of the paper's share (T_u / U = 1/10). A slice during which JAX compiled something is run again.
Ratios are taken within a round, then their median over the rounds.

OpenMP's threads sleep while they wait (OMP_WAIT_POLICY=passive, for all): where other processes
want the cores, as on a shared machine, threads that spin hold each other up, and PyTorch's two
become five times slower than its one.

The peers come with `pip install -e '.[sb3]'` (PyTorch as its CPU build).

    python -m benchmarks.bench_training_peers
    # a smoke run that leaves the documentation alone
    python -m benchmarks.bench_training_peers --quick
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from benchmarks.tables import (
    PAGE,
    markdown_table,
    provenance,
    replace_table,
    significant,
    source_line,
)
from benchmarks.training_contenders import Contender, Make, ours, sb3_sac, sbx_sac
from element_rl.runs.provenance import commit
from element_rl.storage.files import write_json

PEERS = ("sbx", "stable_baselines3", "torch")
PACKAGES = ("jax", "sbx-rl", "stable-baselines3", "torch", "gymnasium", "mujoco", "faiss-cpu")
THREADS = 2
PLAIN = "ours, extrinsic"
SBX, SBX_CHUNKED = "SBX SAC", "SBX SAC, 64 updates a call"
RATIOS = ("of_sbx", "of_sbx_chunked", "of_sb3_as_it_comes", "of_sb3")
SB3_ONE, SB3_TWO = "SB3 SAC, 1 thread", "SB3 SAC, 2 threads"


@dataclass(frozen=True)
class Settings:
    """What to measure."""

    env: str = "Ant-v5"
    remembered: tuple[int, ...] = (
        50_000,
        500_000,
    )  # states in the memory, for ELEMENT and for the kNN bonus
    stored: int = 1_000_000  # transitions in each replay of ours, notes included
    rounds: int = 7
    chunk_steps: int = 64  # of ours: steps between two refreshes of the acting policy
    # of ours and SBX, per round; the window of ours comes round every 2,000
    slice_steps: int = 2_048
    quick: bool = False  # a smoke run: small memories, one short round
    only: tuple[str, ...] = ()  # contenders whose name contains one of these; all when empty
    out: Path = Path(".cache/benchmarks/training_peers.json")


def main(settings: Settings) -> dict[str, Any]:
    """Measure all contenders in turns; the raw rates, the summary and the table."""
    missing = [name for name in PEERS if importlib.util.find_spec(name) is None]
    if missing:
        raise SystemExit(
            f"{', '.join(missing)} not installed: pip install -e '.[sb3]' (PyTorch as its CPU "
            "build)."
        )
    if settings.quick:
        settings = dataclasses.replace(
            settings,
            remembered=(2_000,),
            stored=10_000,
            rounds=1,
            slice_steps=128,
            out=Path(".cache/quick.json"),
        )
    os.environ |= {
        "JAX_PLATFORMS": "cpu",
        "OMP_WAIT_POLICY": "passive",
    }  # read when the contenders start
    source = provenance(PACKAGES) | {
        "commit": (commit() or "unknown")[:7]
    }  # now: the code may change during the run
    rates, shares, load = take_turns(settings)
    result = {
        "source": source,
        "settings": dataclasses.asdict(settings),
        "load": load,
        "rates": rates,
        "processor_share": shares,
        "summary": summarise(rates),
    }
    settings.out.parent.mkdir(parents=True, exist_ok=True)
    write_json(settings.out, result)
    table = render(result)
    print(table)
    if not settings.quick and not settings.only:
        replace_table(PAGE, "training-cpu", table)
    return result


def contenders(settings: Settings) -> dict[str, tuple[Make, tuple[Any, ...], int]]:
    """Name → how to make it, with which arguments, and the steps of its slice (slow ones get
    fewer)."""
    steps, filled = settings.slice_steps, (settings.env, settings.stored, settings.chunk_steps)
    entries: dict[str, tuple[Make, tuple[Any, ...], int]] = {
        PLAIN: (ours, (*filled, "extrinsic", 0), steps),
    }
    for remembered in settings.remembered:
        entries[_element_name(remembered)] = (ours, (*filled, "element", remembered), steps)
    entries[SBX] = (sbx_sac, (settings.env, 1), steps // 4)
    entries[SBX_CHUNKED] = (sbx_sac, (settings.env, settings.chunk_steps), steps // 4)
    entries[SB3_ONE] = (sb3_sac, (settings.env, 1, None), steps // 8)
    entries[SB3_TWO] = (sb3_sac, (settings.env, THREADS, None), steps // 8)
    for remembered in settings.remembered:
        fewer = max(steps // (32 if remembered < 200_000 else 128), 16)
        entries[f"SB3 SAC + kNN, {remembered:,} remembered"] = (
            sb3_sac,
            (settings.env, THREADS, remembered),
            fewer,
        )
    chosen = {
        name: entry
        for name, entry in entries.items()
        if any(part in name for part in settings.only)
    }
    return chosen if settings.only else entries


def take_turns(
    settings: Settings,
) -> tuple[dict[str, list[float]], dict[str, list[float]], list[float]]:
    """Per contender and round: steps per second, and processor seconds a second. Per round: the
    load at its beginning."""
    processes = {}
    try:
        for name, (make, arguments, steps) in contenders(settings).items():
            print(f"preparing {name} …", flush=True)
            processes[name] = Contender(make, arguments, steps)
        rates: dict[str, list[float]] = {name: [] for name in processes}
        shares: dict[str, list[float]] = {name: [] for name in processes}
        load = []
        for number in range(settings.rounds):
            load.append(os.getloadavg()[0])
            for name, process in processes.items():
                rate, share = process.rate()
                rates[name].append(rate)
                shares[name].append(share)
            latest = ", ".join(f"{name} {values[-1]:.1f}" for name, values in rates.items())
            print(f"round {number + 1}/{settings.rounds}: {latest}", flush=True)
        return rates, shares, load
    finally:
        for process in processes.values():
            process.close()


def summarise(rates: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Per contender: median, lowest and highest rate; the rate of all rounds together; medians of
    the ratios within a round."""
    summary = {}
    sb3 = max(
        (name for name in (SB3_ONE, SB3_TWO) if name in rates),
        key=lambda n: statistics.median(rates[n]),
        default="",
    )
    for name, values in rates.items():
        row = {"median": statistics.median(values), "low": min(values), "high": max(values)}
        row["pooled"] = statistics.harmonic_mean(values)  # slices of one contender have equal steps
        others = ((PLAIN, "of_plain"), (SBX, "of_sbx"), (SBX_CHUNKED, "of_sbx_chunked"))
        for other, key in (*others, (SB3_TWO, "of_sb3_as_it_comes"), (sb3, "of_sb3")):
            if other in rates:
                ratios = [mine / theirs for mine, theirs in zip(values, rates[other], strict=True)]
                row |= {
                    key: statistics.median(ratios),
                    f"{key}_low": min(ratios),
                    f"{key}_high": max(ratios),
                }
        summary[name] = row
    return summary


def render(result: dict[str, Any]) -> str:
    """The table of docs/benchmarks.md; bold rows are this library's."""
    header = [
        "contender",
        "env-steps/s",
        "lowest–highest",
        "× SBX SAC",
        "× SBX, 64 a call",
        "× SB3 SAC, as it comes",
        "× SB3 SAC, best threads",
        "cost of reward",
    ]
    rows = []
    for name, row in result["summary"].items():
        is_ours = name.startswith("ours")
        cost = 1 - row.get("of_plain", 1.0)
        rows.append(
            [
                f"**{name}**" if is_ours else name,
                significant(row["median"]),
                f"{significant(row['low'])}–{significant(row['high'])}",
                *(f"{row[key]:.2f}" if key in row else "–" for key in RATIOS),
                f"{100 * cost:.1f} %" if is_ours and name != PLAIN and "of_plain" in row else "–",
            ]
        )
    settings, load = result["settings"], result["load"]
    got = max(max(shares) for shares in result["processor_share"].values())
    about = (
        f"One agent, {settings['env']}, one update of batch 128 per environment step; "
        f"{settings['rounds']} rounds in turns. {THREADS} cores, shared with other work: load at "
        f"the beginning of the rounds {min(load):.1f}–{max(load):.1f}, and no contender's main "
        f"process ever got more than {got:.1f} of the cores."
    )
    return f"{markdown_table(header, rows)}\n\n{about} {source_line(result['source'])}"


def _element_name(remembered: int) -> str:
    return f"ours, ELEMENT, {remembered:,} remembered"


if __name__ == "__main__":
    main(tyro.cli(Settings))
