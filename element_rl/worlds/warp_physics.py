"""The physics of L robots at once by MuJoCo Warp, as functions of arrays that JAX traces.

    physics = WarpPhysics(model, frame_skip, reads=("xpos",))
    after = physics.step(qpos, qvel, warmstart, action)       [L, nq], [L, nv], [L, nv], [L, nu]

A step copies the arrays into Warp's own, makes ``frame_skip`` steps of the physics and copies out
what is asked for; nothing else of Warp's arrays outlives it, so that the arrays are all that a
world is. Numbers are float32, whatever JAX is set to.

**Where it runs.** On JAX's default device when the program is traced: an NVIDIA GPU, or the CPU.
On a GPU a step is one CUDA graph, captured once and given new addresses at each call
(`WARP_STAGED`). On the CPU Warp's threads are one: good for tests, slow for anything else.

**How long it lives.** Warp's arrays are made once for each L and device, at the first trace, and
are kept as long as the process: JAX may call a compiled program at any time. Warp itself is not
safe for threads, and on the CPU JAX runs programs on threads of its own while the next one is
traced here. So one lock is held whenever anything of Warp runs; on a GPU one stream orders what is
computed.

**The first time** takes long: Warp compiles some fifty kernels for the sizes of a robot, about a
minute on a GPU. They are kept on disk (`warp.config.kernel_cache_dir`, or the variable
WARP_CACHE_PATH), and later processes load them.

Departures from C MuJoCo: float32; the solver's tolerance is at least 1e-6; Newton where the model
asks for PGS, which Warp lacks (Humanoid, HumanoidStandup). How far that leads is measured in
docs/results/warp-parity.md.
"""

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import mujoco
from jaxtyping import Array, Bool, Float, Shaped

from element_rl.worlds.warp_loading import import_warp, warp_device

_WARP = threading.RLock()  # whoever runs anything of Warp has it
HUGE = 1e10  # C MuJoCo gives up beyond it, too (mjMAXVAL)
AFTER_CONSTRAINTS = ("cfrc_ext",)  # arrays that `rne_postconstraint` fills


class After(NamedTuple):
    """What a step of the physics came to."""

    moment: dict[str, Shaped[Array, "L ..."]]  # qpos, qvel, and the arrays that were asked for
    warmstart: Float[Array, "L V"]
    faulty: Bool[Array, " L"]  # numbers not finite or huge, or no room for its contacts


class WarpPhysics:
    """A model's physics; ``reads`` names arrays of MuJoCo's data besides qpos and qvel.
    ``aligned``: contacts of capsules with a plane as C MuJoCo has them (`warp_contacts`); without
    it their frames are Warp's own, to measure what that does."""

    def __init__(
        self,
        model: mujoco.MjModel,
        frame_skip: int,
        reads: Sequence[str] = (),
        aligned: bool = True,
    ) -> None:
        self.model = taken_model(model)
        self.frame_skip = frame_skip
        self.reads = tuple(reads)
        self.aligned = aligned
        self._calls: dict[tuple[int, str], _Calls] = {}

    def step(
        self,
        qpos: Float[Array, "L Q"],
        qvel: Float[Array, "L V"],
        warmstart: Float[Array, "L V"],
        action: Float[Array, "L A"],
    ) -> After:
        """Where ``frame_skip`` steps lead with these actions."""
        given = [jnp.asarray(array, jnp.float32) for array in (qpos, qvel, warmstart, action)]
        overflow, next_warmstart, *arrays = self._calls_of(len(qpos)).step(*given)
        moment = dict(zip(("qpos", "qvel", *self.reads), arrays, strict=True))
        return After(moment, next_warmstart, self._is_faulty(moment, overflow))

    def forward(
        self, qpos: Float[Array, "L Q"], qvel: Float[Array, "L V"]
    ) -> dict[str, Shaped[Array, "L ..."]]:
        """The moment that these arrays are, with actions of zero. As in C MuJoCo, arrays of
        `AFTER_CONSTRAINTS` are zero until the first step."""
        given = [jnp.asarray(array, jnp.float32) for array in (qpos, qvel)]
        arrays = self._calls_of(len(qpos)).forward(*given)
        moment = {"qpos": given[0], "qvel": given[1]} | dict(zip(self.reads, arrays, strict=True))
        return {
            name: jnp.zeros_like(array) if name in AFTER_CONSTRAINTS else array
            for name, array in moment.items()
        }

    def _is_faulty(self, moment: Mapping[str, Array], overflow: Array) -> Bool[Array, " L"]:
        """Reaching the limit of the solver's iterations is no fault: C MuJoCo goes on, too."""
        _, mjw = import_warp()
        limits = mjw.OverflowType.ITERATIONS | mjw.OverflowType.LS_ITERATIONS
        sound = [jnp.all(jnp.abs(moment[name]) < HUGE, axis=1) for name in ("qpos", "qvel")]
        return ~(sound[0] & sound[1] & ((overflow & ~int(limits)) == 0))

    def _calls_of(self, worlds: int) -> "_Calls":
        device = warp_device()
        with _WARP:
            key = (worlds, device.alias)
            if key not in self._calls:
                self._calls[key] = _calls(self, worlds, device)
            return self._calls[key]


class _Calls(NamedTuple):
    """What JAX calls, for one number of worlds on one device."""

    step: Callable[..., Sequence[Array]]
    forward: Callable[..., Sequence[Array]]


def _calls(physics: WarpPhysics, worlds: int, device: Any) -> _Calls:
    wp, mjw = import_warp()
    from element_rl.worlds.warp_contacts import align_capsules, room_for  # has kernels

    with wp.ScopedDevice(device):
        model = mjw.put_model(physics.model)
        model.opt.warn_overflow = 0  # it is told by `faulty`
        # otherwise the solver makes all iterations that it may make
        model.opt.graph_conditional = device.is_cpu or wp.is_conditional_graph_supported()
        if physics.aligned:
            model.callback.contactfilter = align_capsules
        room = room_for(physics.model, model.nxn_geom_pair_filtered.numpy().reshape(-1, 2))
        data = mjw.make_data(physics.model, worlds, nconmax=room.contacts, njmax=room.rows)

    @_alone
    def step(*arrays: Any) -> None:
        _copy_in(data, ("qpos", "qvel", "qacc_warmstart", "ctrl"), arrays)
        data.overflow.zero_()
        data.time.zero_()
        for _ in range(physics.frame_skip):
            mjw.step(model, data)
        if set(physics.reads) & set(AFTER_CONSTRAINTS):
            mjw.rne_postconstraint(model, data)
        _copy_out(data, results, arrays[4:])

    @_alone
    def forward(*arrays: Any) -> None:
        _copy_in(data, ("qpos", "qvel"), arrays)
        data.qacc_warmstart.zero_()
        data.ctrl.zero_()
        mjw.forward(model, data)
        _copy_out(data, physics.reads, arrays[2:])

    results = ("overflow", "qacc_warmstart", "qpos", "qvel", *physics.reads)
    return _Calls(
        _callable(step, data, ("qpos", "qvel", "qacc_warmstart", "ctrl"), results, device),
        _callable(forward, data, ("qpos", "qvel"), physics.reads, device),
    )


def _alone(function: Callable[..., None]) -> Callable[..., None]:
    """The function, while no other thread runs anything of Warp."""

    def run(*arrays: Any) -> None:
        with _WARP:
            function(*arrays)

    return run


def _copy_in(data: Any, names: Sequence[str], arrays: Sequence[Any]) -> None:
    for name, array in zip(names, arrays, strict=False):
        import_warp()[0].copy(getattr(data, name), array)


def _copy_out(data: Any, names: Sequence[str], arrays: Sequence[Any]) -> None:
    for name, array in zip(names, arrays, strict=True):
        import_warp()[0].copy(array, getattr(data, name))


def _callable(
    function: Callable[..., None], data: Any, given: Sequence[str], made: Sequence[str], device: Any
) -> Callable[..., Sequence[Array]]:
    """``function`` as JAX calls it, with arrays of the shapes that Warp has for them. It is run
    once: kernels must be compiled and loaded before a graph is captured."""
    if not made:
        return lambda *arrays: ()
    wp, _ = import_warp()
    like = [getattr(data, name) for name in (*given, *made)]
    with wp.ScopedDevice(device):
        function(*(wp.clone(array) for array in like))
        wp.synchronize_device(device)
    names = [f"{name}_in" for name in given] + [f"{name}_out" for name in made]
    kinds = [wp.array(dtype=array.dtype, ndim=array.ndim) for array in like]
    _annotate(function, names, kinds)
    modes = wp.JaxCallableGraphMode
    called: Callable[..., Sequence[Array]] = wp.jax_callable(
        function,
        num_outputs=len(made),
        output_dims=dict(
            zip(names[len(given) :], (a.shape for a in like[len(given) :]), strict=True)
        ),
        graph_mode=modes.WARP_STAGED if device.is_cuda else modes.NONE,
        vmap_method=None,
    )
    return called


def _annotate(function: Any, names: Sequence[str], kinds: Sequence[Any]) -> None:
    """Warp reads the names and types of arguments from the function."""
    kind_of = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [
        inspect.Parameter(name, kind_of, annotation=kind)
        for name, kind in zip(names, kinds, strict=True)
    ]
    function.__signature__ = inspect.Signature(parameters)
    function.__annotations__ = dict(zip(names, kinds, strict=True))


def taken_model(model: mujoco.MjModel) -> mujoco.MjModel:
    """The model as Warp takes it, or a ValueError: positions and velocities must be all of its
    state."""
    state = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_PHYSICS)
    if state != model.nq + model.nv or model.nmocap:
        raise ValueError(
            "Worlds on the device take models whose state is positions and velocities; this one "
            "has activations, delays or bodies moved by hand."
        )
    if model.opt.solver == mujoco.mjtSolver.mjSOL_PGS:
        model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    _, mjw = import_warp()
    try:
        mjw.put_model(model)
    except (NotImplementedError, ValueError) as error:
        raise ValueError(f"MuJoCo Warp does not take this model: {error}") from error
    return model
