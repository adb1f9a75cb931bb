"""Alignment piece by piece: parcels and searchlights."""
