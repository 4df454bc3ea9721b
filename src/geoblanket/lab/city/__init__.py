"""A synthetic city with a taxi fleet whose mobility has a known Markov order."""
