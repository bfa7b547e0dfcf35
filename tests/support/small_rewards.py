"""Options that make the networks and pools of rewards small enough for a test."""

from typing import Any

SMALL_REWARDS: dict[str, dict[str, Any]] = {
    "element-paper": {"update_interval": 4, "update_steps": 4},
    "rnd": {"feature_dim": 8, "target_sizes": (16,), "predictor_sizes": (16,)},
    "icm": {
        "feature_dim": 8,
        "encoder_sizes": (16,),
        "inverse_sizes": (16,),
        "forward_sizes": (16,),
    },
    "ngu": {
        "embedding_dim": 8,
        "encoder_sizes": (16,),
        "head_sizes": (16,),
        "rnd_sizes": (16,),
        "rnd_output_dim": 8,
    },
    "e3b": {"feature_dim": 8, "encoder_sizes": (16,), "head_sizes": (16,)},
    "re3": {"pool_size": 64},
    "rise": {"pool_size": 64},
    "apt": {"pool_size": 64, "feature_dim": 8, "hidden_sizes": (16,)},
}
