"""Speed and accuracy measurements; each file runs with `python -m benchmarks.NAME`."""
