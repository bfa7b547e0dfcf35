"""The console that Super Mario Bros is played on: the ROM, the emulator of this process, and games
that take turns on it.

The emulator is FCEUmm as stable-retro builds it, driven by the path of the ROM. A process can have
one. Games share it: each keeps a save state (13 kB, 7 µs to change over) and goes on as if it had
not been interrupted. The emulator goes when its last game is closed. Workers that shall play at the
same time need a process each.

A game begins at world 1-1. The title screen is played once per process, and its outcome kept in
memory as a save state; nothing is written to a file. The memory of the console is read where it
stands, without stable-retro's own copy of it, which costs half as much as a frame.
"""

import hashlib
import importlib.util
import platform
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

ROM_SHA256 = "ec299b990e8bfee8ba46e3f61d63b2e1ae5b8a2e431de84e2e4bbd692dc53586"
ROM_PACKAGE = "gym_super_mario_bros"  # looked into, never imported: it does not load with NumPy 2
ROM_IN_PACKAGE = Path("_roms", "super-mario-bros.nes")
NEWEST_PYTHON = (3, 14)  # that stable-retro 1.0.1 has wheels for; the oldest is older than ours
BUTTONS = (
    "B",
    None,
    "SELECT",
    "START",
    "UP",
    "DOWN",
    "LEFT",
    "RIGHT",
    "A",
)  # in the order of the emulator's mask
NO_BUTTONS = np.zeros(len(BUTTONS), np.uint8)
START_BUTTON = (np.arange(len(BUTTONS)) == BUTTONS.index("START")).astype(np.uint8)

# Addresses of the console's memory, one byte each, and what they hold.
MODE, TASK = 0x770, 0x772
TITLE, PLAYING, GAME_OVER = 0, 1, 3  # of MODE
RUNNING = 3  # of TASK: the level is loaded and goes on
PLAYER = 0x0E
IN_CONTROL = 8  # of PLAYER
LONGEST_TITLE = 600  # frames; it takes about 195

# Of this process: the console, while some game has it, and the beginning of world 1-1 once it has
# been played to. By ROM.
_consoles: "weakref.WeakValueDictionary[str, _Console]" = weakref.WeakValueDictionary()
_first_states: dict[str, bytes] = {}


class Game:
    """One game of Super Mario Bros. Call `take_turn` before playing on if there are others."""

    def __init__(self, rom: Path) -> None:
        self._console = _shared_console(rom)
        self._state = self._console.first_state

    def restart(self) -> None:
        """World 1-1, the player in control."""
        self.take_turn()
        self._console.load(self._console.first_state)
        # the screen is that of the state before until a frame has been played
        self.play_frame(NO_BUTTONS)

    def take_turn(self) -> None:
        """Put this game on the console, where another of this process may be."""
        holder = self._console.holder()
        if holder is self:
            return
        if holder is not None:
            holder._state = self._console.save()
        self._console.load(self._state)
        self._console.holder = weakref.ref(self)

    def play_frame(self, buttons: UInt8[np.ndarray, " buttons"]) -> None:
        """One frame, a sixtieth of a second, with these buttons held."""
        self._console.play_frame(buttons)

    def read(self, address: int) -> int:
        """One byte of the console's memory."""
        return self._console.read(address)

    def screen(self) -> UInt8[np.ndarray, "H W 3"]:
        """What is on the screen, in colours."""
        return self._console.emulator.get_screen()


class _Console:
    """The emulator of this process."""

    def __init__(self, rom: Path) -> None:
        import stable_retro  # slow, and not everyone has it

        try:
            self.emulator = stable_retro.RetroEmulator(str(rom))
        except RuntimeError as error:
            raise ValueError(
                "Another emulator of stable-retro is open in this process, and it can have only "
                "one; close that first."
            ) from error
        self._data = stable_retro.data.GameData()
        self.emulator.configure_data(self._data)
        self.emulator.step()
        self.holder: Any = lambda: None  # a weak reference to the game that is on the console
        if ROM_SHA256 not in _first_states:
            _first_states[ROM_SHA256] = self._played_title()
        self.first_state = _first_states[ROM_SHA256]

    def play_frame(self, buttons: np.ndarray) -> None:
        self.emulator.set_button_mask(buttons, 0)
        self.emulator.step()

    def read(self, address: int) -> int:
        return int(self._data.memory.extract(address, "|u1"))

    def save(self) -> bytes:
        return self.emulator.get_state()

    def load(self, state: bytes) -> None:
        self.emulator.set_state(state)

    def _played_title(self) -> bytes:
        """Press START when the title is there, and wait for the level."""
        pressed = False
        for _ in range(LONGEST_TITLE):
            at_title = (self.read(MODE), self.read(TASK)) == (TITLE, RUNNING)
            self.play_frame(START_BUTTON if at_title else NO_BUTTONS)
            pressed = pressed or at_title
            place = (self.read(MODE), self.read(TASK), self.read(PLAYER))
            if pressed and place == (PLAYING, RUNNING, IN_CONTROL):
                return self.save()
        raise RuntimeError(
            f"World 1-1 had not begun {LONGEST_TITLE} frames after the console was switched on."
        )


def find_rom(path: str | Path | None = None) -> Path:
    """The ROM at ``path``, or else the one of the extra `mario`; a ValueError says what is missing
    or wrong."""
    if importlib.util.find_spec("stable_retro") is None:
        raise ValueError(_missing_emulator())
    if path is None:
        package = importlib.util.find_spec(ROM_PACKAGE)
        folders = list(package.submodule_search_locations or ()) if package else []
        if not folders:
            raise ValueError(
                "There is no ROM of Super Mario Bros: `pip install --no-deps "
                "gym-super-mario-bros==7.4.0` brings one, or give "
                "the path of yours as the option rom."
            )
        path = Path(folders[0]) / ROM_IN_PACKAGE
    path = Path(path).expanduser().resolve()
    if not path.is_file():
        raise ValueError(
            f"There is no ROM at {path}; give the path of a file as the option rom, or leave it "
            "out."
        )
    if path.suffix.lower() != ".nes":
        raise ValueError(f"The ROM {path} must have a name that ends in .nes; rename or copy it.")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != ROM_SHA256:
        raise ValueError(
            f"{path} is not the ROM of Super Mario Bros that is known here: its sha256 is "
            f"{digest}, expected is {ROM_SHA256}; "
            "leave out the option rom to use the one of the extra mario."
        )
    return path


def _missing_emulator() -> str:
    version, system = sys.version_info[:2], (sys.platform, platform.machine())
    if version > NEWEST_PYTHON or system not in (("linux", "x86_64"), ("darwin", "arm64")):
        return (
            "Super Mario Bros needs stable-retro, which is published for Python 3.10 to {}.{} on "
            "Linux (x86_64) and macOS "
            "(arm64); this is Python {}.{} on {} ({}). Use one of those, or the environment "
            "Rooms-v0."
        ).format(*NEWEST_PYTHON, *version, *system)
    return (
        "Super Mario Bros needs the extra mario: pip install 'element-rl[mario]' (docs/mario.md "
        "says more)."
    )


def _shared_console(rom: Path) -> _Console:
    console = _consoles.get(ROM_SHA256)
    if console is None:
        console = _consoles[ROM_SHA256] = _Console(rom)
    return console
