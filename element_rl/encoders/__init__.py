"""Fixed maps from observations to the states in which entropy and novelty are measured."""
