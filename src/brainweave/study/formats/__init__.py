"""Studies from files: each format is one module or room."""
