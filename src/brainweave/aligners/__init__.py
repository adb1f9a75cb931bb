"""Methods that learn one map per subject into a shared space."""
