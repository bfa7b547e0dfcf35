"""Pushed, deleted, pulled: a run gives the same numbers as before, and can be used as before."""

import json
import shutil
from pathlib import Path

import pytest
from support.run_outcomes import assert_same, outcome
from support.small_hub import everything, pushed
from support.small_rooms import trained_rooms

from element_rl.agents.sac import SACConfig
from element_rl.cli import main
from element_rl.hub import pull
from element_rl.hub.folder_hub import FolderHub
from element_rl.runs.folder import RunFolder
from element_rl.runs.watching import Interrupted
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.explore import explore
from element_rl.training.off_policy.launch import create_run

CONFIG = ExploreConfig(
    "MountainCarContinuous-v0",
    steps=200,
    seeds=2,
    replay_size=300,
    chunk_steps=20,
    log_every=100,
    checkpoint_every=100,
    update_interval=50,
    update_steps=20,
    random_seeds=0,
    workers=0,
    position=("0", "1"),
    bounds=((-1.2, 0.6), (-0.1, 0.1)),
    env_options=("max_episode_steps=20",),
    sac=SACConfig(hidden_sizes=(8,), batch_size=8, learn_start=60),
)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    run = create_run(CONFIG, tmp_path_factory.mktemp("undisturbed") / "run")
    explore(CONFIG, run)
    return run


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def evaluated(run: Path, *options: str) -> dict[str, bytes]:
    arguments = ["evaluate", str(run), "--episodes", "2", "--workers", "0", *options]
    assert main([*arguments, "--out", "evaluated"]) == 0
    return everything(Path("evaluated"))


def test_the_same_numbers_after_push_delete_and_pull(undisturbed: RunFolder, here: Path) -> None:
    shutil.copytree(undisturbed.path, "runs/car")
    before = evaluated(Path("runs/car"))
    assert main(["push", "runs/car", "alice/car", "--to", "hub", "--checkpoints", "all"]) == 0
    shutil.rmtree("runs")
    shutil.rmtree("evaluated")
    assert main(["pull", "alice/car", "--from", "hub"]) == 0
    assert evaluated(Path("runs/car")) == before
    assert len(json.loads(before["evaluation.json"])["checkpoints"]) == 2
    pulled = RunFolder.open("runs/car")
    assert_same(outcome(pulled), outcome(undisturbed))
    assert pulled.read_summary() == undisturbed.read_summary()
    assert (pulled.load_visits() == undisturbed.load_visits()).all()
    film = Path("runs/car/replay.mp4").read_bytes()
    assert film[4:8] == b"ftyp"  # as every mp4 begins


def test_the_newest_policies_alone(
    undisturbed: RunFolder, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run without its memory acts, is drawn, collected from and fine-tuned; it is not
    continued."""
    before = evaluated(undisturbed.path, "--checkpoint", "200")
    pushed(here / "hub", undisturbed)
    run = pull("alice/car", FolderHub(here / "hub")).path
    assert RunFolder.open(run).checkpoint_steps() == [200]
    assert not list(run.rglob("resume"))
    assert not list(run.glob("events.*"))
    assert evaluated(run) == before
    assert main(["plot", str(run)]) == 0
    collect = ["collect", str(run), "--dataset", "car/one-v0", "--steps", "40", "--out", "data"]
    assert main([*collect, "--workers", "0"]) == 0
    tuned = ["finetune", str(run), "--steps", "100", "--episodes", "1", "--no-compare"]
    assert main([*tuned, "--workers", "0", "--out", "tuned"]) == 0
    assert main(["doctor", str(run)]) == 0
    metrics = (run / "metrics.csv").read_bytes()
    assert main(["explore", "--resume", str(run), "--steps", "300"]) == 2
    assert "pushed without its memory" in capsys.readouterr().err
    assert (run / "metrics.csv").read_bytes() == metrics


def test_with_its_memory_it_goes_on_as_if_nothing_had_happened(
    undisturbed: RunFolder, here: Path
) -> None:
    run = create_run(CONFIG, here / "half")
    steps = iter(range(6))
    with pytest.raises(Interrupted):
        explore(CONFIG, run, stop=lambda: next(steps) == 5)
    step = run.latest_checkpoint()
    assert step is not None
    assert step < 200
    pushed(here / "hub", run, with_memory=True)
    shutil.rmtree(run.path)
    path = pull("alice/car", FolderHub(here / "hub"), out=here / "again").path
    assert main(["explore", "--resume", str(path), "--no-figures"]) == 0
    assert_same(outcome(RunFolder.open(path)), outcome(undisturbed))


def test_without_memory_there_is_none_to_push(
    undisturbed: RunFolder, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pushed(here / "hub", undisturbed)
    pull("alice/car", FolderHub(here / "hub"))
    arguments = ["push", "runs/car", "alice/other", "--to", "hub", "--with-memory"]
    assert main([*arguments, "--no-figures", "--no-video"]) == 2
    assert "has no memory to push, only policies" in capsys.readouterr().err
    assert everything(here / "hub").keys() == {
        name for name in everything(here / "hub") if "other" not in name
    }


def test_a_run_on_images(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With its encoder, and a film of what it saw."""
    run = trained_rooms(here / "rooms", 0, 20, {"max_episode_steps": 10})
    before = evaluated(run.path, "--checkpoint", "20")
    assert main(["push", str(run.path), "alice/rooms", "--to", "hub", "--no-figures"]) == 0
    shutil.rmtree(run.path)
    assert main(["pull", "alice/rooms", "--from", "hub"]) == 0
    assert evaluated(Path("runs/rooms")) == before
    assert Path("runs/rooms/replay.mp4").exists()
    assert "Left out" not in capsys.readouterr().out
