"""The frames of a film, read by ffmpeg in a process of its own, which leaves nothing open."""

import subprocess
from pathlib import Path

import numpy as np
from imageio_ffmpeg import get_ffmpeg_exe


def frames_of(path: Path, height: int, width: int) -> np.ndarray:
    """[frames, height, width, 3], in whole numbers from 0 to 255."""
    command = [get_ffmpeg_exe(), "-loglevel", "error", "-i", str(path), "-f", "rawvideo"]
    shown = subprocess.run([*command, "-pix_fmt", "rgb24", "-"], capture_output=True, check=True)
    return np.frombuffer(shown.stdout, np.uint8).reshape(-1, height, width, 3)
