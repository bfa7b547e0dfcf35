"""Names of environments: "Ant", "Ant-v5", or "package:Env-v0", whose package is imported first.

Gymnasium knows an environment when the package that registers it has been imported. A name keeps
its package, so that whoever reads the name later (another command, another day) can import it too.
"""

import dataclasses
import difflib
import importlib
import re

import gymnasium

MARIO = "SuperMarioBros-1-1"
ALIASES = {"mario": MARIO, "rooms": "Rooms-v0"}
# where nothing registered is like the name
SUGGESTED = ("Hopper", "Walker2d", "Ant", "Humanoid", "PointMaze")
# how a name begins → the package that registers it
PACKAGES = {
    "ALE/": "ale_py",
    "BabyAI-": "minigrid",
    "MiniGrid-": "minigrid",
    "dm_control/": "shimmy",
}
MOST_NAMED = 5
SIMILAR = 0.6  # of difflib: "Atn" is still like "Ant", "Breakout" no longer like "Acrobot"
LONGEST_REASON = 300  # characters


def registered_name(name: str) -> str:
    """``name`` in full: with the newest version if it has none, and with its package if it names
    one."""
    module, _, entry = without_alias(name).rpartition(":")
    if module:
        _import(module, entry)
    prefix = f"{module}:" if module else ""
    if entry in gymnasium.registry:
        return prefix + entry
    versions = [
        int(other.rpartition("-v")[2]) for other in gymnasium.registry if _stem(other) == entry
    ]
    if versions:
        return f"{prefix}{entry}-v{max(versions)}"
    raise ValueError(_unknown_in(module, entry) if module else _unknown(entry))


def without_alias(name: str) -> str:
    """The name in Gymnasium's registry of what users call "mario" or "rooms"."""
    return ALIASES.get(name, name)


def gymnasium_id(name: str) -> str:
    """The name as Gymnasium registers it, without its package."""
    return name.rpartition(":")[2]


def registration_of(name: str) -> gymnasium.envs.registration.EnvSpec:
    """What Gymnasium knows of an environment; its package has been imported."""
    return gymnasium.spec(gymnasium_id(name))


def with_package(
    spec: gymnasium.envs.registration.EnvSpec, name: str
) -> gymnasium.envs.registration.EnvSpec:
    """Gymnasium's description under the full name, as datasets keep it: `gymnasium.make` then
    imports the package."""
    try:
        return dataclasses.replace(spec, id=name)
    except gymnasium.error.Error:  # its grammar has no dots before a slash
        return spec


def reason_of(error: BaseException) -> str:
    """What an exception says, in one line, as the end of a sentence without its full stop."""
    text = " ".join(str(error).split()).rstrip(".")
    if isinstance(error, gymnasium.error.Error | ImportError | TypeError | ValueError) and text:
        return text[:LONGEST_REASON]
    return f"{type(error).__name__}: {text}"[:LONGEST_REASON].rstrip(": ")


def _import(module: str, name: str) -> None:
    try:
        importlib.import_module(module)
    except Exception as error:  # a package may raise anything while it is imported
        raise ValueError(
            f"Module {module!r} of environment {name!r} cannot be imported: {reason_of(error)}."
        ) from error


def _unknown(name: str) -> str:
    """The sentence for a name that nobody has registered."""
    namespace = name.rpartition("/")[0]
    beginning = next(filter(name.startswith, PACKAGES), f"{namespace}/" if namespace else "")
    package = PACKAGES.get(beginning, "package")
    if beginning and not any(entry.startswith(beginning) for entry in gymnasium.registry):
        other = "" if beginning in PACKAGES else ", where package is the one that registers it"
        return (
            f"There is no environment {name!r} until its package is imported: say "
            f"{package}:{name}{other}."
        )
    nearest = _nearest(name, list(gymnasium.registry))
    advice = (
        f"did you mean {' or '.join(nearest)}?"
        if nearest
        else f"try one of {', '.join(SUGGESTED)}."
    )
    return f"There is no environment {name!r}; {advice} One of another package: {package}:{name}."


def _unknown_in(module: str, name: str) -> str:
    """The sentence for a name that its module has not registered."""
    package = module.partition(".")[0]
    entries = [
        entry for entry, spec in gymnasium.registry.items() if _package(spec.entry_point) == package
    ]
    nearest = _nearest(name, entries)
    listed = ", ".join(entries[:MOST_NAMED]) + (", …" if len(entries) > MOST_NAMED else "")
    advice = f"did you mean {' or '.join(f'{module}:{entry}' for entry in nearest)}?"
    if not nearest:
        advice = f"it registers {listed}." if entries else "it registers none with Gymnasium."
    return f"Module {module!r} registers no environment {name!r}; {advice}"


def _nearest(name: str, entries: list[str]) -> list[str]:
    """The newest versions of up to three names that are like this one; versions do not make names
    alike."""
    newest: dict[str, str] = {}
    for entry in sorted(entries, key=_version):
        newest[(_stem(entry) or entry).lower()] = entry
    matches = difflib.get_close_matches(
        (_stem(name) or name).lower(), list(newest), n=3, cutoff=SIMILAR
    )
    return [newest[match] for match in matches]


def _package(entry_point: object) -> str:
    text = entry_point if isinstance(entry_point, str) else getattr(entry_point, "__module__", "")
    return re.split(r"[.:]", str(text))[0]


def _version(entry: str) -> int:
    return int(entry.rpartition("-v")[2]) if _stem(entry) else -1


def _stem(entry: str) -> str | None:
    match = re.fullmatch(r"(.+)-v\d+", entry)
    return match[1] if match else None
