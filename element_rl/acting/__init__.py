"""Acting in environments on the host, in processes that load no JAX; nothing is imported here."""
