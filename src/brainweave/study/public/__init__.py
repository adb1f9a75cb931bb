"""Public datasets, downloaded once and kept."""
