"""Shared response models: probabilistic, deterministic, robust, semi-supervised."""
