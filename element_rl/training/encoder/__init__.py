"""Encoders of frames, trained before anything explores: frames of a random policy, ST-DIM, a probe
of what was learned.

`element pretrain-encoder` is the command; docs/encoder.md says what it does and why.
"""
