"""The studies of what exploration is for, whole and tiny: explorers, datasets, offline agents,
fine-tuning. In this process."""

import csv
import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from element_rl.agents.cql import CQLConfig
from element_rl.commands.study import chosen_cells
from element_rl.datasets.collecting import CollectConfig
from element_rl.datasets.minari_files import read_dataset
from element_rl.evaluate.checkpoints import evaluate
from element_rl.runs.folder import RunFolder
from element_rl.storage.files import to_json
from element_rl.studies import offline, transfer
from element_rl.studies.engine import tasks
from element_rl.studies.engine.analysis import mean_over_training, means_over_training, scores_of
from element_rl.studies.engine.attempt import attempt, prepare
from element_rl.studies.engine.grid import (
    Cell,
    Findings,
    FinishedCell,
    cell_folder,
    finished,
    record,
)
from element_rl.studies.engine.jobs import job_from_json, job_to_json
from element_rl.studies.engine.runner import conclude
from element_rl.studies.engine.so_far import so_far
from element_rl.training.finetune import FinetuneConfig
from element_rl.training.offline import OfflineConfig

SCALE = dataclasses.replace(
    tasks.SMOKE,
    steps={"Pendulum-v1": 600},
    samples=400,
    task_steps=600,
    updates=40,
    options={**tasks.SMOKE.options, "checkpoint_every": 300, "workers": 0},
    offline_options={
        "evaluate_every": 20,
        "episodes": 1,
        "workers": 0,
        "cql": CQLConfig(hidden_sizes=(16,), batch_size=16, sampled_actions=2),
    },
)


def cells(study: str) -> list[Cell]:
    return chosen_cells({"offline": offline, "transfer": transfer}[study].STUDY, SCALE, ["element"])


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both studies, whose cells are done in their order; those they have in common once."""
    folder = tmp_path_factory.mktemp("tasks")
    for cell in {
        cell.name: cell for name in ("offline", "transfer") for cell in cells(name)
    }.values():
        attempt(prepare(folder, cell))
    return folder


def done(out: Path, study: str) -> list[FinishedCell]:
    return [entry for cell in cells(study) if (entry := finished(out, cell)) is not None]


def test_grids() -> None:
    """An explorer, its dataset, an agent on that, each after the other; the references are there
    whatever is chosen."""
    kinds = [
        (cell.method, type(cell.config).__name__, len(cell.needs)) for cell in cells("offline")
    ]
    assert kinds == [
        ("sac", "ExploreConfig", 0),
        ("element", "ExploreConfig", 0),
        ("random", "ExploreConfig", 0),
        ("element", "CollectConfig", 1),
        ("random", "CollectConfig", 1),
        ("element", "OfflineConfig", 1),
        ("random", "OfflineConfig", 1),
    ]
    kinds = [
        (cell.method, type(cell.config).__name__, len(cell.needs)) for cell in cells("transfer")
    ]
    assert kinds == [
        ("sac", "ExploreConfig", 0),
        ("element", "ExploreConfig", 0),
        ("element", "FinetuneConfig", 1),
    ]
    assert {cell.name for cell in cells("offline")[:2]} == {
        cell.name for cell in cells("transfer")[:2]
    }
    assert [cell.seeds for cell in cells("offline")] == [2] * 7
    everything = offline.STUDY.cells(tasks.SMALL)
    assert len({cell.name for cell in everything}) == len(everything) == 3 * 19


def test_names_tell_of_all_that_went_before() -> None:
    """Another explorer makes another dataset, and another agent on it; where things are makes no
    difference."""
    ours, others = (
        cells("offline"),
        offline.STUDY.cells(dataclasses.replace(SCALE, steps={"Pendulum-v1": 700})),
    )
    of = {(cell.method, type(cell.config)): cell for cell in others}
    for cell in (ours[3], ours[5]):
        assert cell.name != of["element", type(cell.config)].name
    assert ours[6].name == of["random", OfflineConfig].name
    assert ours[5].name.startswith("Pendulum-v1-offline-element-")
    assert isinstance(ours[3].config, CollectConfig)
    assert ours[3].config.run == Path("..") / ours[1].name


@pytest.mark.parametrize("study", ["offline", "transfer"])
def test_jobs_come_back_from_json(study: str) -> None:
    for cell in cells(study):
        assert (
            job_from_json(json.loads(json.dumps(to_json(job_to_json(cell.config))))) == cell.config
        )


def test_scores_lie_between_random_and_online(out: Path) -> None:
    results = conclude(
        offline.STUDY, "smoke", SCALE, cells("offline"), out, "element study offline"
    )
    assert [cell.state for cell in results.cells] == ["done"] * 7
    entries = {
        (entry.cell.method, type(entry.cell.config)): entry for entry in done(out, "offline")
    }
    dataset = read_dataset(
        "pendulum/element-v0", cell_folder(out, cells("offline")[3]) / "datasets"
    )
    assert np.sum(dataset.episodes.lengths) == 2 * SCALE.samples
    learned = entries["element", OfflineConfig].summary
    assert learned["transitions"] == [SCALE.samples] * 2
    online = entries["sac", type(cells("offline")[0].config)].run
    (reached,) = evaluate(online, 10, True, online.latest_checkpoint(), out=out / "again")
    table = list(csv.reader((out / "offline" / "tables" / "returns.csv").read_text().splitlines()))
    assert table[1][:3] == ["Pendulum-v1", "element", str(2 * SCALE.samples)]
    random = np.mean(
        entries["random", type(cells("offline")[0].config)].summary["extrinsic_return"]
    )
    numbers = [float(text) for text in table[1][3:]]
    expected = [np.mean(learned["behaviour_return"]), np.mean(learned["extrinsic_return"])]
    assert numbers == pytest.approx([*expected, random, reached["extrinsic_return"]])


def test_scores_are_told_of_the_end_and_of_all_of_learning(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evaluated after 20 and 40 updates: the last tenth is the second, the mean is of both."""
    references = {"Pendulum-v1": (-2_000.0, -1_000.0)}
    (learner,) = [
        entry
        for entry in done(out, "offline")
        if isinstance(entry.cell.config, OfflineConfig) and entry.cell.method == "element"
    ]
    _, returns = learner.curves("extrinsic_return")
    assert returns.shape == (2, 2)
    for measured, expected in (
        (scores_of([learner], "extrinsic_return"), returns[:, 1]),
        (means_over_training([learner], "extrinsic_return"), returns.mean(axis=1)),
    ):
        scores = offline._scores(measured, references)["Pendulum-v1"]["element"]
        np.testing.assert_allclose(scores, (expected + 2_000) / 1_000, rtol=1e-6)
    # SAC learned nothing here
    monkeypatch.setattr(offline, "_references", lambda entries: references["Pendulum-v1"])
    tables = {table.name: table for table in offline.analyse(done(out, "offline"), SCALE).tables}
    assert [row[1] for row in tables["scores_throughout"].rows] == ["element", "random"]


def test_a_score_by_hand() -> None:
    returns = {"Pendulum-v1": {"element": np.array([-400.0, -1_300.0])}}
    scores = offline._scores(returns, {"Pendulum-v1": (-1_200.0, -200.0)})
    np.testing.assert_allclose(scores["Pendulum-v1"]["element"], [0.8, -0.1])
    assert offline._scores(returns, {"Pendulum-v1": (-200.0, -1_200.0)}) == {}
    assert (
        offline._no_scores((-200.0, -1_200.0))
        == "learning online (-1,200) came to no more than random (-200)"
    )
    assert (
        offline._no_scores((0.25, 0.2))
        == "learning online (0.2) came to no more than random (0.25)"
    )
    assert offline._no_scores(None) == "learning online or random is not done"


def test_the_papers_scores_stand_beside() -> None:
    scores = {"Walker2d-v5": {"element": np.array([0.1, 0.2]), "random": np.array([0.0, 0.1])}}
    table = offline._beside_the_paper(offline.score_table("scores", "", "score", scores))
    assert [(row[1], row[-1]) for row in table.rows] == [
        ("element", "0.212 ± 0.043"),
        ("random", None),
    ]


def test_transfer_is_compared_with_learning_from_nothing(out: Path) -> None:
    results = conclude(
        transfer.STUDY, "smoke", SCALE, cells("transfer"), out, "element study transfer"
    )
    assert [cell.state for cell in results.cells] == ["done"] * 3
    means, _, starts, finals = results.tables
    assert [row[1] for row in means.rows] == [row[1] for row in finals.rows] == ["element", "sac"]
    (tuned,) = [
        entry for entry in done(out, "transfer") if isinstance(entry.cell.config, FinetuneConfig)
    ]
    assert starts.rows[0][3] == pytest.approx(np.mean(tuned.summary["zero_shot_return"]))
    assert starts.rows[1][2:4] == (None, None)
    assert set(tuned.summary["transferred_step"]) <= {300, 600}
    assert {series.label for series in results.curves[0].series} == {"element", "sac"}


def test_learners_with_other_settings_are_other_cells_on_the_same_explorers() -> None:
    """Only those who learn: what they learn from, and what they are measured by, are done."""
    for study, name, other in (
        (transfer.STUDY, "transfer", tasks.with_learning(SCALE, anchor=1.0, anchor_halflife=500.0)),
        (offline.STUDY, "offline", tasks.with_learning(SCALE, conservative_weight=0.5)),
    ):
        pairs = list(zip(cells(name), chosen_cells(study, other, ["element"]), strict=True))
        changed = [cell.config for cell, changed in pairs if changed.name != cell.name]
        learners = [
            cell.config
            for cell, _ in pairs
            if isinstance(cell.config, FinetuneConfig | OfflineConfig)
        ]
        assert changed == learners != []
        for before, after in ((cell.config, changed.config) for cell, changed in pairs):
            if isinstance(after, FinetuneConfig):
                assert dataclasses.replace(after, anchor=0.0, anchor_halflife=None) == before
                assert (after.anchor, after.anchor_halflife) == (1.0, 500.0)
            elif isinstance(before, OfflineConfig) and isinstance(after, OfflineConfig):
                assert after.cql == dataclasses.replace(before.cql, conservative_weight=0.5)
    screens = (
        tasks.with_learning(tasks.SMALL, conservative_weight=0.5)
        .on("Rooms-v0")
        .offline_options["discrete_cql"]
    )
    assert (screens.conservative_weight, screens.batch_size) == (0.5, 32)


def test_another_algorithm_learns_from_the_same_datasets() -> None:
    other = tasks.with_learning(SCALE, algorithm="iql")
    pairs = list(
        zip(cells("offline"), chosen_cells(offline.STUDY, other, ["element"]), strict=True)
    )
    changed = [after.config for before, after in pairs if before.name != after.name]
    assert [config.algorithm for config in changed] == ["iql"] * len(changed) != []
    assert all(isinstance(config, OfflineConfig) for config in changed)
    with pytest.raises(ValueError, match="--conservative-weight is of CQL, not of iql"):
        tasks.with_learning(SCALE, algorithm="iql", conservative_weight=1.0)
    frames = dataclasses.replace(tasks.SMALL, envs=("Rooms-v0",))
    with pytest.raises(ValueError, match=r"td3-bc learns actions that are vectors.*cql or bc"):
        tasks.with_learning(frames, algorithm="td3-bc")
    cloned = tasks.with_learning(frames, algorithm="bc").on("Rooms-v0").offline_options
    assert (cloned["algorithm"], cloned["frame_stack"]) == ("bc", 4)


def test_reports_say_how_the_learners_were_set(out: Path) -> None:
    """Of cells that are done; the scale alone is told otherwise."""
    anchored = tasks.with_learning(SCALE, anchor=0.5, anchor_halflife=3_000.0)
    held = "Transferred actors are held near the policy they came with: anchor 0.5"
    assert (
        f"{held}, halving every 3,000 updates."
        in transfer.analyse(done(out, "transfer"), anchored).notes
    )
    always = tasks.with_learning(SCALE, anchor=0.5)
    assert f"{held}." in transfer.analyse(done(out, "transfer"), always).notes
    assert not any("held" in note for note in transfer.analyse(done(out, "transfer"), SCALE).notes)
    weighted = tasks.with_learning(SCALE, conservative_weight=0.25)
    for scale, weight in ((SCALE, "5"), (weighted, "0.25")):
        (note,) = [
            note
            for note in offline.analyse(done(out, "offline"), scale).notes
            if "conservative weight" in note
        ]
        assert note.endswith(f"40 updates, conservative weight {weight}.")
    cloning = tasks.with_learning(SCALE, algorithm="bc")
    notes = offline.analyse(done(out, "offline"), cloning).notes
    assert any(note.endswith("40 updates, algorithm bc.") for note in notes)


def test_the_mean_over_training_weighs_steps(tmp_path: Path, out: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {}, ("step", "seed", "extrinsic_return"))
    for step, returns in ((100, (None, 4.0)), (200, (1.0, 4.0)), (400, (2.0, 7.0))):
        run.append_metrics(
            [{"step": step, "seed": s, "extrinsic_return": r} for s, r in enumerate(returns)]
        )
    entry = dataclasses.replace(done(out, "transfer")[0], run=run, summary={"seeds": [0, 1]})
    # 1 for 100 steps and 2 for 200; 4 for 200 and 7 for 200
    np.testing.assert_allclose(mean_over_training(entry, "extrinsic_return"), [5 / 3, 5.5])


def test_what_cells_leave_is_theirs_alone(out: Path) -> None:
    """Nothing lies beside the cells, and nothing in them names a place on this machine."""
    assert {path.name for path in out.iterdir()} <= {"cells", "offline", "transfer", "again"}
    for cell in (*cells("offline"), *cells("transfer")):
        assert record(out, cell).state == "done"
        for name in ("cell.json", "config.json", "summary.json"):
            assert str(out) not in (cell_folder(out, cell) / name).read_text()


def test_nothing_to_compare_by_is_said(out: Path) -> None:
    without = [entry for entry in done(out, "offline") if entry.cell.method != "sac"]
    found: Findings = offline.analyse(without, SCALE)
    assert any(
        "Pendulum-v1 has no scores: learning online or random is not done." in note
        for note in found.notes
    )
    assert found.tables[0].rows == ()


def test_transfer_is_read_as_far_as_it_is(out: Path, tmp_path: Path) -> None:
    """The explorers are done; the fine-tuning was killed on its way, and SAC is read where that has
    come to."""
    for cell in cells("transfer"):
        shutil.copytree(cell_folder(out, cell), cell_folder(tmp_path, cell))
    whole = finished(out, cells("transfer")[2])
    assert whole is not None
    killed = RunFolder.open(cell_folder(tmp_path, cells("transfer")[2]))
    (killed.path / "summary.json").unlink()
    killed.truncate_metrics(300)
    entries, notes = so_far(cells("transfer"), tmp_path)
    assert notes == (
        "Pendulum-v1: all methods at 240 steps per seed, because element went no further.",
    )
    explorer, scratch, tuned = entries
    assert explorer.summary["steps"] == 600
    assert [entry.cell.method for entry in (scratch, tuned)] == ["sac", "element"]
    assert [entry.summary["steps"] for entry in (scratch, tuned)] == [240, 240]
    assert scratch.curves("extrinsic_return")[0].tolist() == [240]
    for name in ("zero_shot_return", "transferred_step", "transferred_from"):
        assert tuned.summary[name] == whole.summary[name]
    results = conclude(
        transfer.STUDY, "smoke", SCALE, cells("transfer"), tmp_path, "--so-far", unfinished=True
    )
    assert [row[1] for row in results.tables[0].rows] == ["element", "sac"]


def test_learners_from_datasets_count_when_they_are_done(out: Path, tmp_path: Path) -> None:
    for cell in cells("offline"):
        shutil.copytree(cell_folder(out, cell), cell_folder(tmp_path, cell))
    (cell_folder(tmp_path, cells("offline")[5]) / "summary.json").unlink()
    entries, notes = so_far(cells("offline"), tmp_path)
    learners = [
        entry.cell.method for entry in entries if isinstance(entry.cell.config, OfflineConfig)
    ]
    assert learners == ["random"]
    assert len(entries) == 6
    assert notes == ("Pendulum-v1: not done yet: element.",)
