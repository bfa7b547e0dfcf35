"""What a user is told of position and coverage before a run begins: a line for each."""

from element_rl.envs.positions import NONE
from element_rl.envs.spec import EnvSpec

SIZES = "--cell-size, or --bounds for a map of 100 × 100"  # options of the map
ROLLOUT_SIZES = "--bounds: a map of 100 × 100 with bounds"  # what element on-policy has of them


def coverage_note(spec: EnvSpec, said: bool = False, sizes: str = SIZES) -> str:
    """Nothing where the library knows the position and its map; nothing of the position where the
    user has said it."""
    if not spec.position and spec.has_map:
        return ""
    return "\n".join(filter(None, ("" if said else _of_position(spec), _of_coverage(spec, sizes))))


def _of_position(spec: EnvSpec) -> str:
    if spec.found:
        return (
            f"Position of the agent: {spec.found}. --position says another, --position {NONE} that "
            "there is none."
        )
    if not spec.position:
        return (
            f"No position of the agent was found in {spec.name}; --position says one: obs[0:2], an "
            "entry of info, env.NAME, or FILE.py:FUNCTION."
        )
    return ""


def _of_coverage(spec: EnvSpec, sizes: str) -> str:
    if spec.coverage_cell_size is not None and spec.coverage_axes is not None:
        (first, second), (width, height) = spec.coverage_axes, spec.coverage_cell_size
        return (
            f"Coverage counts cells of {width:g} along {first} and {height:g} along {second}, "
            f"wherever they are ({sizes})."
        )
    one = "A map has two axes, and the position has one number: c" if spec.position else "C"
    if spec.other_cells is not None:
        return f"{one}overage counts {spec.other_cells.described}."
    return "Coverage is not counted: random actions failed before the run." * (not spec.has_map)
