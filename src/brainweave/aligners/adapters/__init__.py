"""Methods of other packages, by adapters."""
