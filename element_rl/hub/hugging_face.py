"""The Hugging Face hub, by its own library; a thin layer that turns its errors into sentences.

A push is one commit. A pull asks for the commit first, and then for its files, so that all of them
are of one moment. Who is logged in, where the hub is (`HF_ENDPOINT`) and whether it may be asked
(`HF_HUB_OFFLINE`) is the library's business.
"""

import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from element_rl import __version__
from element_rl.hub.repository import MOST_FILES, Contents, HubError, Repository
from element_rl.storage.files import FileError

MISSING_EXTRA = (
    "The hub needs huggingface_hub, which is not installed: pip install 'element-rl[hub]'."
)
LOG_IN = "log in with `hf auth login`, or set HF_TOKEN"
LIBRARY = {"library_name": "element-rl", "library_version": __version__}


class HuggingFaceHub:
    """huggingface.co, or what HF_ENDPOINT names."""

    name = "the Hugging Face hub"

    def __init__(self) -> None:
        try:
            import huggingface_hub
        except ImportError as error:
            raise HubError(MISSING_EXTRA) from error
        self._library: Any = huggingface_hub
        self._api: Any = huggingface_hub.HfApi(**LIBRARY)  # type: ignore[arg-type]

    def contents(self, repository: Repository, revision: str | None) -> Contents | None:
        which = {"repo_id": repository.id, "repo_type": repo_type(repository)}
        not_found = self._library.errors.RepositoryNotFoundError
        gated = self._library.errors.GatedRepoError
        with self._in_a_sentence(repository):
            try:
                commit = self._api.repo_info(**which, revision=revision).sha
            except not_found as error:
                if isinstance(error, gated):
                    raise
                return None
            tree = self._api.list_repo_tree(**which, recursive=True, revision=commit)
            entries = list(itertools.islice(tree, 2 * MOST_FILES))
        files = {entry.path: int(entry.size) for entry in entries if hasattr(entry, "size")}
        if len(entries) == 2 * MOST_FILES or len(files) > MOST_FILES:
            raise HubError(
                f"{repository} holds more than {MOST_FILES:,} files: too many for a run."
            )
        return Contents(repository, files, {}, commit)

    def download(self, contents: Contents, names: Collection[str], folder: Path) -> None:
        with self._in_a_sentence(contents.repository):
            self._library.snapshot_download(
                contents.repository.id,
                repo_type=repo_type(contents.repository),
                revision=contents.revision,
                local_dir=folder,
                allow_patterns=list(names),
                **LIBRARY,
            )
        shutil.rmtree(folder / ".cache", ignore_errors=True)  # the library's notes on its download

    @contextlib.contextmanager
    def staging(self, repository: Repository) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="element-push-") as folder:
            yield Path(folder)

    def publish(
        self,
        repository: Repository,
        staged: Path,
        before: Contents | None,
        gone: Collection[str],
        message: str,
        private: bool,
    ) -> str:
        which = {"repo_id": repository.id, "repo_type": repo_type(repository)}
        with self._in_a_sentence(repository):
            # None: as the user's settings on the hub have it
            url = self._api.create_repo(**which, private=private or None, exist_ok=True)
            self._api.upload_folder(
                **which,
                folder_path=staged,
                commit_message=message,
                parent_commit=None if before is None else before.revision,
                delete_patterns=sorted(gone) or None,
            )
        return str(url)

    @contextlib.contextmanager
    def _in_a_sentence(self, repository: Repository) -> Iterator[None]:
        """The library has errors for everything, and lets those of others through."""
        errors = self._library.errors
        try:
            yield
        except FileError:
            raise
        except errors.OfflineModeIsEnabled as error:
            raise HubError(
                "The Hugging Face hub is not asked while HF_HUB_OFFLINE is set: unset it, or use a "
                "folder (--to DIR, --from DIR)."
            ) from error
        except errors.LocalTokenNotFoundError as error:
            raise HubError(f"The Hugging Face hub has to know you for this: {LOG_IN}.") from error
        except errors.HfHubHTTPError as error:
            raise HubError(refusal(repository, error)) from error
        except Exception as error:  # of connections, of certificates, of proxies, of the disk
            reason = f"{type(error).__name__}: {shown(error)}"
            raise HubError(
                f"The Hugging Face hub could not be used for {repository} ({reason}): try again, "
                "or use a folder (--to DIR, --from DIR)."
            ) from error


def repo_type(repository: Repository) -> str:
    return "dataset" if repository.kind == "dataset" else "model"


def refusal(repository: Repository, error: Any) -> str:
    """A sentence for an answer of the hub that is a refusal."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    reason = shown(getattr(error, "server_message", None) or error)
    advice = {401: LOG_IN, 403: f"ask its owner, or {LOG_IN}", 404: "look at its name"}
    return (
        f"The Hugging Face hub refused {repository} ({status or type(error).__name__}: {reason}): "
        f"{advice.get(status or 0, 'try again later')}."
    )


def shown(error: object) -> str:
    """The first line of what an error says."""
    return (str(error).strip().splitlines() or ["no reason given"])[0][:200].rstrip(".")
