"""The empirical study of Markov blankets: how the tests' p-values go with speed, place and hour, and a report of it."""
