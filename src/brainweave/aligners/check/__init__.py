"""Whether an alignment holds up on samples that did not take part in it."""
