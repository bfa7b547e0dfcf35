"""How things are written to the disk and read again: files, manifests, trees of arrays, settings."""
