"""Run folders are whole after a kill: at random moments, and before every file operation of a
checkpoint."""

import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
from support.known_checkpoints import check, row, save

from element_rl.runs.folder import RunFolder

SAVING = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    import numpy as np
    from element_rl.runs.metrics_log import first_records
    from element_rl.runs.folder import RunFolder

    first_records(None)  # loads TensorBoard's messages before the moment is chosen: it takes long
    run = RunFolder.open(sys.argv[1])
    step = run.latest_checkpoint() or 0
    if step:
        assert (run.load_resume()[0]["replay/observations"] == step).all()
    run.truncate_metrics(step)
    print("ready", flush=True)
    while True:
        step += 1
        run.append_metrics([{"step": step, "seed": seed, "coverage": step} for seed in range(2)])
        run.save_checkpoint(
            step,
            {"actor/weight": np.full((2, 3), step, np.float32)},
            np.full((2, 100, 100), step, np.int32),
            {"replay/observations": np.full(500_000, step, np.float32)},
            {"step": step},
            lambda folder: (folder / "memory.faiss").write_bytes(bytes([step % 256]) * 500_000),
        )
    """
)


def test_killed_at_random_moments(run: RunFolder) -> None:
    moment = random.Random(0)
    steps = [0]
    # a slow machine saves little between two kills
    while len(steps) <= 7 or (steps[-1] < 3 and len(steps) < 200):
        command = [sys.executable, "-c", SAVING, str(run.path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(moment.uniform(0.01, 0.3))
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        survivor = RunFolder.open(run.path)
        latest = survivor.latest_checkpoint()
        if latest is not None:
            check(survivor, latest)
            logged = survivor.read_metrics()["step"]
            np.testing.assert_array_equal(
                logged[: 2 * latest], np.repeat(np.arange(1, latest + 1), 2)
            )
        steps.append(latest or 0)
    assert steps == sorted(steps)
    assert steps[-1] >= 3


EVERY_MOMENT = textwrap.dedent(
    """
    import os, shutil, sys
    from pathlib import Path
    sys.path.insert(0, sys.argv[2])
    from element_rl.runs.metrics_log import first_records
    from element_rl.runs.folder import RunFolder
    from support.known_checkpoints import check, row, save

    first_records(None)  # loads TensorBoard's messages: those files are not the checkpoint's
    original, survivors = Path(sys.argv[1]), []
    operations = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod"}
    for moment in range(1, 1000):
        folder = original.with_name(f"copy_{moment}")
        shutil.copytree(original, folder)
        if (child := os.fork()) == 0:
            happened = 0
            def die_at_the_moment(event, arguments):
                global happened
                happened += event in operations
                if happened == moment:
                    os._exit(9)
            run = RunFolder.open(folder)
            sys.addaudithook(die_at_the_moment)
            run.append_metrics([row(2, 0, coverage=2)])
            save(run, 2)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        run = RunFolder.open(folder)
        check(run, run.latest_checkpoint())
        survivors.append(run.latest_checkpoint())
        run.truncate_metrics(run.latest_checkpoint())
        save(run, 3)
        check(run, 3)
        assert not list(run.checkpoints_path.glob(".*")), list(run.checkpoints_path.iterdir())
        assert len(list(run.checkpoints_path.glob("*/resume"))) == 1
        if status == 0:
            break
    print(*survivors)
    """
)


def test_killed_before_every_file_operation_of_a_checkpoint(run: RunFolder) -> None:
    """The process ends, for real, at the first file operation, then at the second, and so on to the
    last."""
    run.append_metrics([row(1, 0, coverage=1)])
    save(run, 1)
    command = [sys.executable, "-c", EVERY_MOMENT, str(run.path), str(Path(__file__).parents[1])]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    survivors = [int(step) for step in result.stdout.split()]
    assert len(survivors) > 30
    # the old checkpoint until the new one is complete, never neither
    assert survivors == sorted(survivors)
    assert set(survivors) == {1, 2}
