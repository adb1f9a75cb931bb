"""Fetchers of public datasets."""
