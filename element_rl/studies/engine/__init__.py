"""What runs any study: its grid of cells, their processes or Ray tasks, results, statistics and
tables."""
