"""The Graph-based Decoding Model: estimators, solvers, strength, new subjects."""
