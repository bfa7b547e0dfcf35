"""Where a hub is: a folder, or on the network."""

from pathlib import Path

from element_rl.hub.folder_hub import FolderHub
from element_rl.hub.hugging_face import HuggingFaceHub
from element_rl.hub.repository import Hub


def hub_at(folder: Path | None) -> Hub:
    """The hub in a folder; without one, the Hugging Face hub."""
    return HuggingFaceHub() if folder is None else FolderHub(folder)
