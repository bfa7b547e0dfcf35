"""What several tests share. Worker processes import from here too: they inherit the tests' path."""
