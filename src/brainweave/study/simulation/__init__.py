"""Simulated studies."""
