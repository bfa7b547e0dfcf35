"""Algorithm 3 for a population of agents with a replay: `explore` is the loop, `learner` its device
side."""
