"""Each check of the doctor on something sound, and on something that is really broken in the way it
looks for."""

import dataclasses
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from rich.console import Console
from support.documents import ROOT

from element_rl.cli import main
from element_rl.doctor import explorer, installation, run_folder, terms
from element_rl.doctor.cost import check_recall
from element_rl.doctor.explorer import check_entropy, check_explore
from element_rl.doctor.findings import Finding, exit_code
from element_rl.doctor.learning import check_learner
from element_rl.doctor.report import as_json, print_verdict, printed
from element_rl.doctor.trial import Judgement, Trial, TrialSettings
from element_rl.runs.folder import RunFolder

OWN_REWARD = '''
"""A reward that is VALUE for every transition."""
from typing import ClassVar
import jax.numpy as jnp

class Constant:
    name: ClassVar[str] = "constant"
    metric_names: ClassVar[tuple[str, ...]] = ()
    def note_shapes(self): return {}
    def init(self, key, spec): return ()
    def observe(self, state, episode): return state, {}
    def update(self, state, batch, key): return state, {}
    def reward(self, state, batch): return jnp.full(batch.action.shape[0], VALUE)
    def reward_terms(self, state, batch): return {"reward_lifelong": self.reward(state, batch)}

def make(): return Constant()
'''


def own_reward(folder: Path, value: str) -> str:
    """A file with a reward that gives `value` for every transition, as --reward takes it."""
    path = folder / "own.py"
    path.write_text(OWN_REWARD.replace("VALUE", value))
    return f"{path}:make"


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    tried = Trial(TrialSettings("PointMaze", steps=400))
    tried.collect()
    yield tried
    tried.close()


# The command


def test_a_sound_bonus_passes_every_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "PointMaze", "--steps", "400", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["exit_code"] == 0
    found = {finding["name"]: finding for finding in told["findings"]}
    wanted = {
        "Python",
        "packages",
        "devices",
        "threads",
        "extras",
        "disk",
        "MuJoCo",
        "MuJoCo Warp",
        "finite",
        "varied",
        "balanced",
    }
    assert found.keys() == wanted | {
        "explore",
        "entropy",
        "new states",
        "cost",
        "recall",
        "reaches learner",
    }
    assert all(found[name]["status"] != "fail" for name in found)
    assert sum(found["balanced"]["values"]["shares"].values()) == pytest.approx(1.0)
    # The weights, read off the rewards: 1 for the episodic term and β = 0.5 for the lifelong one.
    assert found["balanced"]["values"]["weights"]["reward_lifelong"] == pytest.approx(0.5, abs=1e-3)
    assert found["cost"]["values"]["sac_update"] > 0
    assert found["recall"]["values"]["recall"] > 0.95


def test_a_sum_of_rewards(capsys: pytest.CaptureFixture[str]) -> None:
    """Its weights are read off the rewards, that of the task's reward too, which a trial must then
    be told. On Pendulum that is far larger than all else."""
    small = ["rnd.feature_dim=8", "rnd.target_sizes=[16]", "rnd.predictor_sizes=[16]"]
    reward = "element + 0.25*rnd - 2*extrinsic"
    arguments = ["Pendulum-v1", "--reward", reward, "--reward-options", *small, "--steps", "400"]
    found = findings(capsys, *arguments)
    weights = {"reward_element": 1.0, "reward_rnd": 0.25, "reward_extrinsic": -2.0}
    assert found["balanced"]["values"]["weights"] == pytest.approx(weights, abs=1e-2)
    assert found["balanced"]["advice"] == "Give reward_element and reward_rnd more weight."
    assert found["reaches learner"]["status"] == "ok"


def findings(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, dict[str, Any]]:
    """What a run of the command finds, by name."""
    main(["doctor", *arguments, "--json"])
    return {finding["name"]: finding for finding in json.loads(capsys.readouterr().out)["findings"]}


def test_an_environment_that_explore_refuses(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says why in the words of `element explore`, and tries the bonus all the same: a plug-in
    would use it."""

    def refuse(name: str, **options: object) -> None:
        raise ValueError(f"{name} has two images.")

    monkeypatch.setattr(explorer, "describe", refuse)
    found = findings(capsys, "CartPole-v1", "--steps", "200")
    assert found["explore"]["status"] == "warn"
    assert "CartPole-v1 has two images." in found["explore"]["sentence"]
    assert "docs/sb3.md" in found["explore"]["advice"]
    assert "reaches learner" in found
    assert "--reward-options bandwidth=" in found["entropy"]["advice"]


def test_a_position_is_found_or_not(capsys: pytest.CaptureFixture[str]) -> None:
    """The words are those before a run; the environment keeps its package."""
    note = "No position of the agent was found in Pendulum-v1"
    assert note in check_explore(TrialSettings("Pendulum-v1")).sentence
    assert check_explore(TrialSettings("PointMaze")).sentence.endswith("actions of 2.")
    named = TrialSettings("Pendulum-v1", position=(0,))
    assert note not in check_explore(named).sentence
    main(["doctor", "own_world:OwnWalk", "--steps", "200"])
    assert "Reward element on own_world:OwnWalk-v0, 200 random steps" in capsys.readouterr().out


def test_an_entropy_that_is_blind(capsys: pytest.CaptureFixture[str]) -> None:
    """The advice is taken, and then it is well."""
    found = findings(capsys, "MountainCarContinuous-v0", "--steps", "200")
    assert found["explore"]["status"] == "ok"
    assert found["entropy"]["status"] == "warn"
    assert "blind" in found["entropy"]["sentence"]
    bandwidth = found["entropy"]["values"]["advised"]
    assert "element explore calibrates its states here" in found["entropy"]["advice"]
    assert f"--reward-options bandwidth={bandwidth:g}" in found["entropy"]["advice"]
    assert entropy_found("MountainCarContinuous-v0", 200, bandwidth=bandwidth).status == "ok"


def entropy_found(env: str, steps: int, **reward_options: Any) -> Finding | None:
    tried = Trial(TrialSettings(env, steps=steps, reward_options=reward_options))
    tried.collect()
    tried.close()
    return check_entropy(tried, explored=True)


def test_an_entropy_that_is_saturated() -> None:
    found = entropy_found("Humanoid-v5", 800)  # in a shorter episode it is still falling
    assert found.status == "warn"
    assert "saturated" in found.sentence
    assert found.values["successive"] < 0.1
    assert 10 <= found.values["advised"] <= 50


class Poisoned(gymnasium.Env):
    """Observes NaN at its seventh step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(3, np.float32), {}

    def step(self, action: int) -> Any:
        self.time += 1
        return (
            np.full(3, np.nan if self.time == 7 else 0.1 * self.time, np.float32),
            0.0,
            False,
            False,
            {},
        )


def failures(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, str]:
    """The checks that failed in a run of the command."""
    assert main(["doctor", *arguments, "--steps", "100", "--json"]) == 1
    return {
        f["name"]: f["sentence"]
        for f in json.loads(capsys.readouterr().out)["findings"]
        if f["status"] == "fail"
    }


def test_observations_that_are_not_finite_fail(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    gymnasium.register("Poisoned-v1", entry_point=Poisoned, max_episode_steps=20)
    failed = failures(capsys, "Poisoned-v1", "--reward", own_reward(tmp_path, "1.0"))
    assert failed.keys() == {"observations"}
    assert "Step 6" in failed["observations"]


def test_rewards_of_nan_and_constant_rewards_fail(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    failed = failures(capsys, "PointMaze", "--reward", own_reward(tmp_path, "jnp.nan"))
    assert failed.keys() == {"finite"}
    assert "reward in 2,048" in failed["finite"]
    failed = failures(capsys, "PointMaze", "--reward", own_reward(tmp_path, "3.0"))
    assert failed.keys() == {"varied"}
    assert "the same, 3" in failed["varied"]


def test_a_reward_that_raises_fails(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    failed = failures(capsys, "PointMaze", "--reward", own_reward(tmp_path, "batch.no_such_thing"))
    assert failed.keys() == {"trial"}
    assert "AttributeError" in failed["trial"]


def test_mistakes_are_answered_by_exit_code_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for arguments, sentence in (
        (["Antt-v5"], "did you mean Ant-v5"),
        (["PointMaze", "--reward", "curiosity"], "no reward called 'curiosity'"),
        (["PointMaze", "--position", "0", "7"], "which are 0 to 1; got 0, 7"),
        (["PointMaze", "--steps", "7"], "--steps must be at least 100"),
        ([str(tmp_path / "nothing")], "There is no run folder"),
        ([str(tmp_path)], "no config.json"),
    ):
        assert main(["doctor", *arguments]) == 2
        captured = capsys.readouterr()
        assert sentence in captured.err
        assert captured.out == ""


def test_the_page_fits_80_columns_and_the_json_has_no_nan(
    capsys: pytest.CaptureFixture[str],
) -> None:
    long = (
        "A sentence [with brackets] that is so long that it goes over more than one line of 80 "
        "columns, surely."
    )
    findings = [
        Finding("first", "ok", long),
        Finding("second", "fail", "Bad.", long, {"loss": np.float32("nan")}),
    ]
    console = Console(width=80)
    assert printed(console, "Title", findings) == findings
    print_verdict(console, findings)
    page = capsys.readouterr().out
    assert max(map(len, page.splitlines())) <= 80
    assert "[with brackets]" in page
    assert "1 well, 1 failed" in page
    assert json.loads(as_json(findings))["findings"][1]["values"] == {"loss": None}
    assert [exit_code(findings), exit_code(findings[:1])] == [1, 0]


# The installation


def test_an_old_python_fails() -> None:
    assert installation.check_python((3, 10, 4)).status == "fail"
    assert installation.check_python().status == "ok"


def test_all_extras_of_the_package_that_users_install_are_known() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    of_developers = {"bench", "dev", "docs"}
    extras = project["optional-dependencies"].keys() - of_developers
    assert installation.EXTRAS.keys() == extras
    assert "parquet" in installation.check_extras().values


def test_requirements_that_are_not_met_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A distribution is put on the path that needs an older NumPy and something nobody has."""
    about = tmp_path / "needs_much-1.0.dist-info"
    about.mkdir()
    wants = ("numpy<1", "no-such-thing>=2", "scipy", "torch-of-another-world; extra == 'more'")
    lines = [
        "Metadata-Version: 2.1",
        "Name: needs-much",
        "Version: 1.0",
        *(f"Requires-Dist: {w}" for w in wants),
    ]
    (about / "METADATA").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    broken = installation.broken_requirements("needs-much")
    assert len(broken) == 2
    assert broken[0].startswith("needs-much needs numpy<1, but ")
    assert "no-such-thing, which is missing" in broken[1]
    assert installation.check_packages("needs-much").status == "fail"


def test_a_gpu_that_jax_does_not_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidia0").touch()
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    finding = installation.check_devices(tmp_path)
    assert finding.status == "warn"
    assert "element-rl[cuda]" in finding.advice
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert "unset it" in installation.check_devices(tmp_path).advice
    assert installation.check_devices(tmp_path / "empty").status == "ok"


def test_how_many_devices_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    four = 4 * jax.devices()[:1]
    monkeypatch.setattr("jax.devices", lambda: four)
    finding = installation.check_devices(tmp_path)
    assert "of which element explore uses 1." in finding.sentence  # of CPUs
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    finding = installation.check_devices(tmp_path)
    assert "of which element explore uses 4 (--devices)" in finding.sentence
    assert finding.values["used"] == 4


def test_more_threads_than_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quota = tmp_path / "cpu.max"
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert installation.check_threads(quota).status == "ok"
    quota.write_text("max 100000\n")
    assert installation.check_threads(quota).status == "ok"
    quota.write_text("50000 100000\n")
    assert "only 0.5 of them" in installation.check_threads(quota).sentence
    quota.unlink()
    monkeypatch.setenv("OMP_NUM_THREADS", "4096")
    assert "OMP_NUM_THREADS is 4096" in installation.check_threads(quota).sentence
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    assert "not set" in installation.check_threads(quota).sentence


def test_a_folder_that_cannot_be_written_and_a_robot_that_cannot_be_made(tmp_path: Path) -> None:
    assert installation.check_disk(tmp_path / "new" / "runs").status in ("ok", "warn")
    assert not list(tmp_path.iterdir())
    assert installation.check_disk(Path("/proc/self/task")).status == "fail"
    assert installation.check_mujoco("Hoppper-v5").status == "fail"


# The reward


def judged(episodic: Any, lifelong: Any, reward: Any) -> Judgement:
    named = {
        "reward_episodic": np.asarray(episodic, np.float32),
        "reward_lifelong": np.asarray(lifelong, np.float32),
    }
    return Judgement(np.arange(len(episodic)), np.asarray(reward, np.float32), named, [0.0])


def test_shares_of_the_variance_by_hand() -> None:
    episodic, lifelong = np.array([0.0, 0.0, 1.0, 1.0]), np.array([0.0, 1.0, 0.0, 1.0])
    even = terms.check_balance(judged(episodic, lifelong, episodic + 0.5 * lifelong))
    assert even.status == "ok"
    assert even.values["shares"] == pytest.approx({"reward_episodic": 0.8, "reward_lifelong": 0.2})
    uneven = terms.check_balance(judged(episodic, lifelong, episodic + 0.2 * lifelong))
    assert uneven.status == "warn"
    assert "--beta" in uneven.advice
    # nobody asked for the other term
    off = terms.check_balance(judged(episodic, lifelong, episodic))
    assert off.status == "ok"
    silent = terms.check_balance(judged(episodic, np.zeros(4), episodic))
    assert "reward_lifelong is the same for all" in silent.sentence
    product = terms.check_balance(
        judged(episodic + 1, lifelong + 1, (episodic + 1) * (lifelong + 1) ** 4)
    )
    assert "no weighted sum" in product.sentence


def test_rewards_too_small_for_sac() -> None:
    small = judged([0.0, 1.0], [0.0, 1.0], [0.0, 1e-4])
    assert "--recent-scale" in terms.check_varied(small).advice


def test_a_reward_for_what_was_seen_often(trial: Trial) -> None:
    """The distance to the crowd as the reward, and its opposite."""
    states = trial.states()
    crowding = np.linalg.norm(states - np.median(states, axis=0), axis=1).astype(np.float32)
    ids = np.arange(len(states))
    for sign, status in ((1, "ok"), (-1, "warn")):
        finding = terms.check_novelty(
            trial, Judgement(ids, sign * crowding, {"reward_lifelong": crowding}, [0.0])
        )
        assert finding.status == status


def test_a_memory_that_does_not_find_neighbours(trial: Trial) -> None:
    """The paper's graph finds few of the neighbours of trajectory data (docs/benchmarks.md)."""
    assert check_recall(trial).status == "ok"
    trial.settings, before = (
        dataclasses.replace(trial.settings, reward_options={"memory": "graph"}),
        trial.settings,
    )
    finding = check_recall(trial)
    trial.settings = before
    assert finding.status == "warn"
    assert finding.values["recall"] < 0.5


def test_a_memory_that_keeps_some_of_the_states(trial: Trial) -> None:
    trial.settings, before = (
        dataclasses.replace(trial.settings, reward_options={"memory": "spaced"}),
        trial.settings,
    )
    finding = check_recall(trial)
    trial.settings = before
    assert (finding.status, finding.values["kind"]) == ("ok", "spaced")
    assert 1 < finding.values["kept"] < len(trial.states()) // 2
    assert "farther on average than the nearest of all" in finding.sentence


def test_a_reward_that_does_not_reach_the_learner(trial: Trial, tmp_path: Path) -> None:
    assert check_learner(trial).status == "ok"
    nothing = Trial(TrialSettings("PointMaze", own_reward(tmp_path, "0.0"), steps=100))
    nothing.collect()
    assert check_learner(nothing).status == "fail"


def test_stable_baselines3_learns_from_it_or_not(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
    from element_rl.doctor.sb3_learning import check_sb3

    found = check_sb3(TrialSettings("CartPole-v1", "rise", steps=200))
    assert found.status == "ok", found.sentence
    broken = check_sb3(TrialSettings("PointMaze", own_reward(tmp_path, "0.0"), steps=100))
    assert broken.status == "fail"
    assert "without the bonus nothing changes" in broken.sentence


# A run


def run_with(
    folder: Path, summary: Any = None, settings: Any = None, **columns: Any
) -> dict[str, Finding]:
    """Findings on a run folder of twenty lines, sound but for the columns given: a function of the
    line's number."""
    sound = {
        "episode_length": lambda i: 500,
        "episodic_entropy": lambda i: 3.0,
        "entropy_saturation": lambda i: 0.4,
        "coverage": lambda i: 10 * i,
        "memory_size": lambda i: 10 * i,
        "reward_episodic": lambda i: None if i < 3 else 0.5,
        "reward_lifelong": lambda i: None if i < 3 else 0.4,
        "critic_loss": lambda i: None if i < 3 else 0.1,
        "temperature": lambda i: None if i < 3 else 0.1,
    } | columns
    given = {"reward": "element", "beta": 0.5, "episodic_weight": 1.0, "update_interval": 100} | (
        settings or {}
    )
    run = RunFolder.create(folder, {"env": "Hopper-v5", "reward": "element", "settings": given})
    run.append_metrics(
        [
            {"step": 100 * i, "seed": 0} | {n: value(i) for n, value in sound.items()}
            for i in range(1, 21)
        ]
    )
    if summary:
        run.write_summary(summary)
    return {
        finding.name: finding for finding in run_folder.check_run(*run_folder.opened_run(folder))
    }


def test_a_sound_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_with(tmp_path / "run")
    assert {name: finding.status for name, finding in found.items()} == dict.fromkeys(found, "ok")
    assert found.keys() == {
        "files",
        "finite",
        "balanced",
        "memory",
        "temperature",
        "coverage",
        "episodes",
        "saturation",
    }
    assert found["coverage"].values["growth"] == pytest.approx(0.2)
    assert main(["doctor", str(tmp_path / "run")]) == 0
    assert "8 well." in capsys.readouterr().out


# what → the finding, its status, and the columns that make it so
BROKEN: dict[str, tuple[str, str, dict[str, Any]]] = {
    "collapsed temperature": ("temperature", "fail", {"temperature": lambda i: 0.2 * 0.5**i}),
    "low temperature": ("temperature", "warn", {"temperature": lambda i: 5e-4}),
    "NaN": ("finite", "fail", {"critic_loss": lambda i: 0.1 if i < 12 else np.nan}),
    "infinity": ("finite", "fail", {"critic_loss": lambda i: 0.1 if i < 12 else np.inf}),
    "one term": ("balanced", "warn", {"reward_lifelong": lambda i: 0.001}),
    "empty memory": ("memory", "warn", {"memory_size": lambda i: 0}),
    "no growth": ("coverage", "warn", {"coverage": lambda i: min(10 * i, 120)}),
    "below random": ("coverage", "warn", {"summary": {"random_policy": {"coverage": [300, 320]}}}),
    "survival": (
        "episodes",
        "warn",
        {"episode_length": lambda i: 50 * i, "episodic_entropy": lambda i: np.log2(50 * i)},
    ),
    "no episode": ("episodes", "warn", {"episode_length": lambda i: None}),
    "saturated": ("saturation", "warn", {"entropy_saturation": lambda i: 0.97}),
    "blind": ("saturation", "warn", {"entropy_saturation": lambda i: 0.004}),
}


@pytest.mark.parametrize("what", list(BROKEN))
def test_what_is_wrong_with_a_run(tmp_path: Path, what: str) -> None:
    name, status, columns = BROKEN[what]
    found = run_with(tmp_path / "run", **columns)
    assert found[name].status == status
    assert found[name].advice
    others = {other: finding.status for other, finding in found.items() if other != name}
    assert others == dict.fromkeys(others, "ok")
    assert main(["doctor", str(tmp_path / "run")]) == (1 if status == "fail" else 0)


def test_the_advice_on_a_logged_entropy_is_about_the_reward_only_where_it_sees_the_same(
    tmp_path: Path,
) -> None:
    """What is logged has σ = 1; the reward of the run has its own estimator and bandwidth."""
    advice = {}
    for name, own in {
        "same": {"estimator": "renyi", "bandwidth": 1.0, "env": "Hopper-v5"},
        "other": {"estimator": "kde", "bandwidth": 0.1},
        "none": {"estimator": "knn", "bandwidth": 1.0},
        "rnd": {"reward": "rnd"},
    }.items():
        found = run_with(tmp_path / name, settings=own, entropy_saturation=lambda i: 0.004)
        advice[name] = found["saturation"].advice
    assert "element doctor Hopper-v5 tells one that fits" in advice["same"]
    assert "has bandwidth 0.1" in advice["other"]
    assert "has no bandwidth" in advice["none"]
    assert "rnd does not use it" in advice["rnd"]


def test_a_run_of_another_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    RunFolder.create(tmp_path / "run", {"env": "x"})
    assert main(["doctor", str(tmp_path / "run")]) == 2
    assert "nothing an explorer would" in capsys.readouterr().err
