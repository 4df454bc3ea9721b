"""Markov blankets: which past locations a vehicle's next one depends on."""
