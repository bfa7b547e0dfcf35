"""A campaign of faults: kills, damaged files, fuzzed command lines, bad environments and rewards.

python -m benchmarks.faults --kills 200 --damages 2000 --command-lines 1000 --foreign 60
"""
