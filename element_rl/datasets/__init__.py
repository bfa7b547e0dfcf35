"""Datasets: episodes in memory, Minari files in and out, and plain exports."""
