"""How good an alignment is: scores on samples and subjects that were left out."""
