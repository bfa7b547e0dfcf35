"""How things are written to the disk and read again: files, locks, trees of arrays, settings."""
