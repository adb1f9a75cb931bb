"""Graphs that say which samples, of whichever subject, belong together or apart."""
