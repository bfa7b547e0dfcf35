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
    "disagreement": {"num_models": 3, "hidden_sizes": (16,)},
    "ride": {
        "feature_dim": 8,
        "encoder_sizes": (16,),
        "inverse_sizes": (16,),
        "forward_sizes": (16,),
    },
    "noveld": {"feature_dim": 8, "target_sizes": (16,), "predictor_sizes": (16,)},
    "pseudo-counts": {"table_size": 64, "calibration_steps": 4},
    "etd": {
        "embedding_dim": 8,
        "encoder_sizes": (16,),
        "potential_sizes": (16,),
        "num_pairs": 8,
        "pool_size": 256,
    },
    "rle": {"latent_dim": 2, "feature_sizes": (16,)},
    "metra": {"encoder_sizes": (16,), "warm_up": 20},
    "re3": {"pool_size": 64},
    "rise": {"pool_size": 64},
    "apt": {"pool_size": 64, "feature_dim": 8, "hidden_sizes": (16,)},
}
