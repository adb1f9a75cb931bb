"""Studies whose truth is known."""
