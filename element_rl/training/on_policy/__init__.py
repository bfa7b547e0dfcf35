"""On-policy exploration on images: asynchronous workers, A3C, and intrinsic rewards that are there
before the advantages are. `training.train` is the loop."""
