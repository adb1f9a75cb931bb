"""The plain folder format of a study on disk."""
