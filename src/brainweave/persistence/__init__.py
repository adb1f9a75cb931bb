"""Values, models and bases in files: one way to write them down and to read them."""
