"""How novel is a state? The lifelong reward of ELEMENT on its own, in a dozen lines.

python examples/novelty_of_states.py
"""

import numpy as np

from element_rl.memory import make_memory

rng = np.random.default_rng(0)
memory = make_memory("auto", dim=2)
memory.insert(rng.normal(size=(5_000, 2)))  # states visited so far, around the origin

for place in ([0.0, 0.0], [2.0, 2.0], [10.0, 0.0]):
    distances, _ = memory.query(np.array([place]), k=3)
    print(f"novelty at {place}: {float(np.log1p(np.linalg.norm(distances))):.3f}")
