"""The page in a real browser: of runs that train, finish and are killed while they are watched."""

import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.browser import Browser, open_browser
from support.invented_runs import make_run
from support.pages import EVIL

from element_rl.runs.folder import RunFolder
from element_rl.watch.folders import Watch
from element_rl.watch.server import open_server

EXPLORE = [sys.executable, "-m", "element_rl.cli", "explore", "PointMaze", "--reward", "random"]
# random actions learn nothing, so nothing is compiled but the entropy
TINY = ["--env-options", "max_episode_steps=50", "--workers", "0", "--random-seeds", "0"]
TINY += ["--no-figures", "--seeds", "2", "--chunk-steps", "50", "--log-every", "200"]
CARD = "[...document.querySelectorAll('.card')].find(c => c.querySelector('h2').innerText === '{}')"
PIXELS = "[...document.querySelectorAll('.maps .area canvas')].map(c => c.toDataURL()).join()"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    yield from open_browser("the page of element watch")


@pytest.fixture(scope="module")
def invented(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a page of two finished runs, a damaged one and one with an evil name."""
    folder = tmp_path_factory.mktemp("runs")
    make_run(folder / "first")
    make_run(folder / "second", "rnd", speed=1.5)
    make_run(folder / "damaged", "ngu", seeds=1, rows=False)
    (folder / "damaged" / "metrics.csv").write_text("step,seed\n1\n")
    evil = RunFolder.create(folder / re.sub("[/\0]", "", EVIL)[:200], evil_config())
    evil.append_metrics([{"step": 1, "seed": 0, "coverage": 3}])
    names = ("first", "second", "damaged", evil.path.name)
    with served(Watch([folder / name for name in names])) as address:
        yield address


def evil_config() -> dict:
    return {"kind": "explore", "env": f"x$\\frac{{$y{EVIL}", "reward": EVIL, "settings": {}}


@contextlib.contextmanager
def served(watch: Watch) -> Iterator[str]:
    """The address of the page of these runs."""
    server, ended = open_server(watch, 0), threading.Event()
    threads = [
        threading.Thread(target=server.serve_forever, args=(0.05,)),
        threading.Thread(target=watch.follow, args=(ended, 0.1)),
    ]
    watch.look()
    for thread in threads:
        thread.start()
    try:
        yield server.address
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
        for thread in threads:
            thread.join()


def text_of(browser: Browser, name: str, place: str) -> str:
    return browser.evaluate(f"({CARD.format(name)})?.querySelector('{place}').innerText ?? ''")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1400])
def test_readable_on_a_telephone_and_on_a_wide_screen(
    browser: Browser, invented: str, width: int, dark: bool
) -> None:
    browser.open(invented, width, dark=dark)
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    browser.settle()
    assert browser.problems() == []
    assert browser.evaluate("[innerWidth, document.scrollingElement.scrollWidth]") == [width, width]
    scales = (
        "[...document.querySelectorAll('.chart > svg, .area > svg')]"
        ".map(s => s.clientWidth / s.viewBox.baseVal.width)"
    )
    assert all(0.98 <= scale <= 1.02 for scale in browser.evaluate(scales))
    ink = "getComputedStyle(document.body).color.match(/\\d+/g).map(Number)[0]"
    assert (browser.evaluate(ink) > 128) == dark
    columns = "getComputedStyle(document.querySelector('section .figures')).gridTemplateColumns"
    assert len(browser.evaluate(columns).split()) == (1 if width == 390 else 3)
    assert "NaN" not in browser.evaluate("document.body.innerHTML")
    assert all(address.startswith(invented) for address in browser.requests())


def test_runs_of_an_environment_share_their_charts(browser: Browser, invented: str) -> None:
    browser.open(invented)
    chart = "document.querySelector('figure[data-name={}]')"
    labels = f"[...{chart}.querySelectorAll('polyline.line')].map(line => line.dataset.label)"
    assert browser.evaluate(labels.format("coverage")) == ["element", "rnd"]
    seeds = f"{chart}.querySelectorAll('polyline.seed').length"
    assert browser.evaluate(seeds.format("coverage")) == 6
    titles = "[...document.querySelectorAll('section:first-child .figures h3')]"
    shown = browser.evaluate(f"{titles}.map(title => title.innerText)")
    assert shown[:5] == [
        "Coverage map",
        "Coverage",
        "Episodic entropy",
        "Mean episodic reward",
        "Mean lifelong reward",
    ]
    assert browser.evaluate("document.querySelectorAll('.maps .panel').length") == 3
    # one is taken out of them
    browser.evaluate(f"({CARD.format('second')}).querySelector('input').click()")
    browser.settle()
    assert browser.evaluate(labels.format("coverage")) == ["element"]
    browser.evaluate(f"({CARD.format('second')}).querySelector('input').click()")
    browser.settle()
    assert browser.evaluate(labels.format("coverage")) == ["element", "rnd"]


def test_maps_are_played_back_and_read(browser: Browser, invented: str) -> None:
    browser.open(invented)
    output = "document.querySelector('.maps output').innerText"
    browser.wait_for(f"{output} === 'step 500,000 (newest)'")
    newest = browser.evaluate(PIXELS)
    browser.evaluate("document.querySelector('.maps input').focus()")
    browser.press("ArrowLeft")
    browser.wait_for(f"{output} === 'step 250,000' && {PIXELS} !== {json.dumps(newest)}")
    browser.press("ArrowRight")
    browser.wait_for(f"{PIXELS} === {json.dumps(newest)}")
    browser.evaluate(
        "(s => { s.value = '1'; s.dispatchEvent(new Event('change')); })"
        "(document.querySelector('.maps select'))"
    )
    browser.wait_for(f"{PIXELS} !== {json.dumps(newest)}")
    place = browser.evaluate(
        "(c => { c.scrollIntoView({block: 'center', behavior: 'instant'});"
        "const b = c.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })"
        "(document.querySelector('.maps .area canvas'))"
    )
    browser.hover(*place)
    browser.settle()
    read = browser.evaluate("document.querySelector('.maps .value').textContent")
    assert re.fullmatch(r"\(−?[\d.]+, −?[\d.]+\): ([\d,]+|nothing)", read)
    assert browser.problems() == []


def test_text_from_outside_stays_text_and_damage_is_said(browser: Browser, invented: str) -> None:
    browser.open(invented, 390)
    assert browser.evaluate("window.broken === undefined && document.images.length === 0")
    whats = "[...document.querySelectorAll('.what')].map(what => what.innerText)"
    assert any(
        "x$\\frac{$y" in what and EVIL.strip()[:20] in what for what in browser.evaluate(whats)
    )
    assert "is damaged in line 2" in text_of(browser, "damaged", ".problems")
    assert text_of(browser, "first", ".far").startswith("500,000 steps")
    assert browser.problems() == []


def test_other_kinds_of_runs_show_what_they_have(browser: Browser, tmp_path: Path) -> None:
    kinds = {
        "offline": ("cql", ("extrinsic_return", "q_mean", "critic_loss"), "updates"),
        "encoder": ("", ("training_loss", "validation_loss", "updates"), "epochs"),
        "on-policy": ("rise", ("coverage", "furthest", "reward_mean", "value_mean"), "steps"),
    }
    for kind, (reward, columns, _) in kinds.items():
        config = {"kind": kind, "env": f"Rooms-{kind}", "reward": reward, "settings": {}}
        run = RunFolder.create(tmp_path / kind, config, ("step", "seed", *columns))
        run.append_metrics(
            [{"step": step, "seed": 0} | dict.fromkeys(columns, step / 7) for step in range(1, 9)]
        )
    with served(Watch([tmp_path / kind for kind in kinds])) as address:
        browser.open(address)
        for kind, (_, _, unit) in kinds.items():
            assert text_of(browser, kind, ".far").startswith(f"8 {unit}")
        names = (
            "[...document.querySelectorAll('section')].map(section => "
            "[...section.querySelectorAll('figure.curves')].map(figure => figure.dataset.name))"
        )
        assert browser.evaluate(names) == [
            ["extrinsic_return", "q_mean", "critic_loss"],
            ["training_loss", "validation_loss"],
            ["coverage", "furthest", "rewards", "value_mean"],
        ]
        assert browser.problems() == []


@contextlib.contextmanager
def exploring(out: Path, steps: str) -> Iterator[subprocess.Popen]:
    """A run that trains, until it is done or this is left."""
    command = [*EXPLORE, *TINY, "--out", str(out), "--steps", steps]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def test_watched_while_they_train_finish_and_die(browser: Browser, tmp_path: Path) -> None:
    """From an empty folder: one run finishes, the other is killed. The page is never reloaded."""
    (tmp_path / "runs").mkdir()
    with (
        served(Watch([tmp_path / "runs"])) as address,
        exploring(tmp_path / "runs" / "ends", "4_000") as ends,
        # its first checkpoint is far away
        exploring(tmp_path / "runs" / "dies", "20_000_000") as dies,
    ):
        watch_them(browser, address, tmp_path / "runs", ends, dies)


def watch_them(
    browser: Browser, address: str, runs: Path, ends: subprocess.Popen, dies: subprocess.Popen
) -> None:
    browser.open(address)
    assert browser.evaluate("document.querySelector('h1').innerText") == "No run yet"
    browser.evaluate("window.neverReloaded = true")
    for name in ("ends", "dies"):
        browser.wait_for(f"{CARD.format(name)}?.dataset.state !== undefined")
    browser.wait_for(f"({CARD.format('ends')}).dataset.state === 'finished'")
    assert text_of(browser, "ends", ".far") == "4,000 of 4,000 steps (100 %)"
    far = f"({CARD.format('dies')}).querySelector('.far').innerText"
    browser.wait_for(f"/ left · last line /.test({far})")
    assert text_of(browser, "dies", ".badge") == "running"
    before = browser.evaluate(PIXELS)
    browser.wait_for(f"{PIXELS} !== {json.dumps(before)}")  # the map fills up
    assert not (runs / "dies" / "checkpoints").exists()
    dies.send_signal(signal.SIGKILL)
    browser.wait_for(f"({CARD.format('dies')}).dataset.state === 'died'")
    command = f"element explore --resume {runs}/dies"
    assert text_of(browser, "dies", ".command code") == command
    assert "killed, or ended by an error" in text_of(browser, "dies", ".sentence")
    assert browser.evaluate("window.neverReloaded")
    assert browser.problems() == []
    assert ends.wait() == 0


def test_a_watcher_that_has_ended_is_missed(browser: Browser, tmp_path: Path) -> None:
    make_run(tmp_path / "run", seeds=1)
    command = [sys.executable, "-m", "element_rl.cli", "watch", str(tmp_path / "run"), "--port=0"]
    line = "document.querySelector('#connection')"
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        (address,) = re.findall(r"http://\S+", process.stdout.readline())
        browser.open(address)
        assert browser.evaluate(f"{line}.innerText") == "Followed every second."
        process.terminate()
    assert process.returncode == 0
    browser.wait_for(f"{line}.innerText.startsWith('No answer from element watch since')")
    assert browser.evaluate("document.querySelectorAll('polyline.line').length") > 3
