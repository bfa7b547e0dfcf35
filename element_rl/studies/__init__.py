"""The experiments of the paper: grids of runs, their statistics, and a page that shows what came
out."""
