"""BIDS datasets and the output of fMRIPrep."""
