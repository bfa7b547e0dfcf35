"""Run folders: what is in one, how a command makes, reopens and watches a run, and where it came
from."""
