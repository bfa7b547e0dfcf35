"""Every test runs with shapes and types checked, implicit rank promotion forbidden and warnings as errors."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MUJOCO_GL", "disable")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in `element_rl.cli`; two processes test side by side

from jaxtyping import install_import_hook

install_import_hook("element_rl", "beartype.beartype")

import jax

jax.config.update("jax_numpy_rank_promotion", "raise")
