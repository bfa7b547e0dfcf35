"""Algorithm 3 for a population of agents with a replay: `explore` is the run, `explorer` its loop,
`learner` the device side."""
