"""A reward divided by the running standard deviation of its discounted return, as RND does (Burda
et al., 2018, section 2.4).

    R_t = γ R_{t−1} + r_t         along the steps of one worker, across its episodes
    scaled r_t = r_t / std(R)     over all R so far, of all workers; no mean is subtracted

The filter runs over time. (Running it over environments instead is a mistake that other code has
made.)
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float


class ReturnScale:
    """Of one agent; in float64."""

    def __init__(self, num_workers: int, discount: float) -> None:
        self.discount = discount
        self.returns = np.zeros(num_workers)  # R of each worker
        self.moments = np.zeros(3)  # number, mean, sum of squared deviations

    def scaled(self, worker: int, rewards: Float[np.ndarray, " T"]) -> Float[np.ndarray, " T"]:
        """The rewards of a rollout over the deviation of all returns, theirs included."""
        for reward in rewards:
            self.returns[worker] = self.discount * self.returns[worker] + reward
            number, mean, squares = self.moments
            difference = self.returns[worker] - mean
            mean += difference / (number + 1)
            self.moments[:] = number + 1, mean, squares + difference * (self.returns[worker] - mean)
        deviation = np.sqrt(self.moments[2] / max(self.moments[0], 1.0))
        return (rewards / (deviation if deviation > 0 else 1.0)).astype(np.float32)

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {"returns": self.returns.copy(), "moments": self.moments.copy()}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.returns, self.moments = arrays["returns"].copy(), arrays["moments"].copy()
