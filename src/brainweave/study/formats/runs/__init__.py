"""From the volumes of a run to samples: events, times, cleaning, trials."""
