"""The replay of a population: arrays on the device and their bookkeeping on the host."""
