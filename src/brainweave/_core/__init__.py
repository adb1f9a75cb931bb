"""What every room uses: arrays, checks, files, workers, labels, errors."""
