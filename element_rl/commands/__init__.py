"""The commands of `element`, a file each, imported when they are used."""
