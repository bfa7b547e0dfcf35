"""Acting in environments on the host, in processes that load no JAX; so nothing is imported here."""
