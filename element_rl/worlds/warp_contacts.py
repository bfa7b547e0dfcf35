"""The contact frame of a capsule on a plane, and how many contacts a model can have.

C MuJoCo aligns the first tangent of such a contact with the capsule's axis a: with the plane's
normal n,

    t₁ = (a − n (n·a)) / |a − n (n·a)|        t₂ = n × t₁

MuJoCo Warp does the same where |a − n (n·a)| ≥ 0.5, and takes the world's y otherwise, that is for
capsules steeper than 60°. Friction cones are pyramids, which feel how they are turned: an Ant's
legs would slip in other directions. `align_capsules` is a contact filter of MuJoCo Warp, called
after every collision detection, that writes C's frame (measured in docs/results/warp-parity.md).

    room for        contacts                          rows of constraints
    a world         one for each pair of geoms        all contacts and limits, as far as those go
                    that can meet
"""

from typing import Any, NamedTuple, no_type_check

import mujoco
import numpy as np
from jaxtyping import Int

from element_rl.worlds.warp_loading import import_warp

wp, _ = import_warp()

MOST_CONTACTS = 256  # room for each world, of models with many geoms
MOST_ROWS = 256
_PLANE = wp.constant(int(mujoco.mjtGeom.mjGEOM_PLANE))
_CAPSULE = wp.constant(int(mujoco.mjtGeom.mjGEOM_CAPSULE))
_UPRIGHT = wp.constant(1e-6)  # a capsule that has no direction along the plane, in float32
_GEOM = mujoco.mjtGeom
# how many contacts two geoms can have, by type; OTHERS_TOUCH for those that are not listed
_TOUCH = {
    (_GEOM.mjGEOM_PLANE, _GEOM.mjGEOM_SPHERE): 1,
    (_GEOM.mjGEOM_PLANE, _GEOM.mjGEOM_CAPSULE): 2,
    (_GEOM.mjGEOM_PLANE, _GEOM.mjGEOM_CYLINDER): 4,
    (_GEOM.mjGEOM_SPHERE, _GEOM.mjGEOM_SPHERE): 1,
    (_GEOM.mjGEOM_SPHERE, _GEOM.mjGEOM_CAPSULE): 1,
    (_GEOM.mjGEOM_SPHERE, _GEOM.mjGEOM_CYLINDER): 1,
    (_GEOM.mjGEOM_CAPSULE, _GEOM.mjGEOM_CAPSULE): 2,
}
_OTHERS_TOUCH = 8


class Room(NamedTuple):
    """What a world is given."""

    contacts: int  # of all worlds together: L times this
    rows: int


@wp.kernel(enable_backward=False)
@no_type_check
def _capsule_frames(
    geom_type: wp.array[int],
    geom_xmat: wp.array2d[wp.mat33],
    contact_geom: wp.array[wp.vec2i],
    contact_world: wp.array[int],
    contacts: wp.array[int],
    capacity: int,
    frame: wp.array[wp.mat33],
):
    contact = wp.tid()
    if contact >= wp.min(contacts[0], capacity):
        return
    geoms = contact_geom[contact]
    if geoms[0] < 0 or geoms[1] < 0:
        return
    if geom_type[geoms[0]] != _PLANE or geom_type[geoms[1]] != _CAPSULE:
        return
    turned = geom_xmat[contact_world[contact], geoms[1]]
    axis = wp.vec3(turned[0, 2], turned[1, 2], turned[2, 2])
    old = frame[contact]
    normal = wp.vec3(old[0, 0], old[0, 1], old[0, 2])
    along = axis - normal * wp.dot(normal, axis)
    length = wp.length(along)
    first = wp.vec3(1.0, 0.0, 0.0)  # as C's mju_normalize3 of nothing
    if length > _UPRIGHT:
        first = along / length
    second = wp.cross(normal, first)
    frame[contact] = wp.matrix_from_rows(normal, first, second)


@no_type_check
def align_capsules(model: Any, data: Any) -> None:
    """A contact filter: `model.callback.contactfilter = align_capsules`."""
    wp.launch(
        _capsule_frames,
        dim=data.naconmax,
        inputs=[
            model.geom_type,
            data.geom_xmat,
            data.contact.geom,
            data.contact.worldid,
            data.nacon,
            data.naconmax,
        ],
        outputs=[data.contact.frame],
    )


def room_for(model: mujoco.MjModel, pairs: Int[np.ndarray, "N 2"]) -> Room:
    """Room for a world of this model, whose geoms can meet in these pairs [N, 2].

    A world whose numbers are no longer finite passes every filter of the broad phase, so that each
    pair needs a place: then no world can take another's.
    """
    touches = [_touches(model, *pair) for pair in pairs.tolist()]
    contacts = sum(touches)
    rows = sum(
        most * _rows(model, *pair) for most, pair in zip(touches, pairs.tolist(), strict=True)
    )
    rows += 6 * model.neq + int(model.jnt_limited.sum()) + int(model.tendon_limited.sum())
    rows += int((model.dof_frictionloss > 0).sum()) + int((model.tendon_frictionloss > 0).sum())
    return Room(
        min(max(contacts, len(pairs), 1), max(len(pairs), MOST_CONTACTS // 4), MOST_CONTACTS),
        min(max(rows, 1), MOST_ROWS),
    )


def _touches(model: mujoco.MjModel, first: int, second: int) -> int:
    types = sorted((int(model.geom_type[first]), int(model.geom_type[second])))
    return _TOUCH.get((_GEOM(types[0]), _GEOM(types[1])), _OTHERS_TOUCH)


def _rows(model: mujoco.MjModel, first: int, second: int) -> int:
    """Rows of one contact: those of a pyramid are more than those of an elliptic cone."""
    dims = [int(model.geom_condim[first]), int(model.geom_condim[second]), *model.pair_dim.tolist()]
    return max(1, 2 * (max(dims) - 1))
