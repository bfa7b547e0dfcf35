"""The replay of a population: `ring`, its arrays on the device, and `ledger`, its bookkeeping on
the host."""
