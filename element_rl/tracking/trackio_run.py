"""A run in Trackio.

Its variables hold (TRACKIO_DIR, TRACKIO_SPACE_ID, TRACKIO_SERVER_URL, ...). Without a space or a
server the run is in Trackio's own folder, and nothing asks the network.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

from element_rl.tracking.interface import Facts, Files, Outcome, artifact_name
from element_rl.tracking.settings import PROJECT

REMOTE = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")


class TrackioRun:
    """One run; see `Tracker`."""

    def begin(self, facts: Facts, stored: Mapping[str, Any], remember: Callable[..., None]) -> None:
        self._local = not any(os.environ.get(name) for name in REMOTE)
        if self._local:  # or it would ask the hub for the user's name
            os.environ.setdefault("HF_HUB_OFFLINE", "1")
        import trackio

        identity, self._name = stored.get("id"), stored.get("name") or facts.name
        self._project = stored.get("project") or facts.project or PROJECT
        self._run = trackio.init(
            project=self._project,
            name=self._name,
            group=facts.group,
            config={"kind": facts.kind, **facts.config},
            # A run is found by its name, which others may have too.
            resume="never" if identity is None else "must",
            embed=False,
        )
        if identity not in (None, self._run.id):
            raise ValueError(
                f"the project {self._project} has a newer run that is called {self._name} too"
            )
        remember(id=self._run.id, project=self._project, name=self._name)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def send(self, files: Files) -> None:
        import trackio

        shown: dict[str, Any] = dict(files.results)
        shown |= {name: trackio.Image(str(path)) for name, path in files.images.items()}
        shown |= {name: trackio.Video(str(path)) for name, path in files.videos.items()}
        self._run.log(shown, step=files.step)
        artifact = trackio.Artifact(
            artifact_name(self._name, self._run.id), type="run", metadata=files.note
        )
        for name, path in files.files.items():
            artifact.add_file(path, name=name)
        self._run.log_artifact(artifact)

    def finish(self, outcome: Outcome) -> str:
        self._run.finish()
        how = f"trackio show --project {self._project}" if self._local else "see its space"
        return f"trackio; {'see it with: ' if self._local else ''}{how}"
