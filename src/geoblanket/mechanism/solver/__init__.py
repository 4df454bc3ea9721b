"""The optimiser: an interior-point method for the linear program, with proven bounds.

Its modules begin with numbers that steer the search. Whatever they are, every mechanism is verified and every bound
proven; they decide how long the search takes, and which of the mechanisms within the gap it ends with. Each says what
it trades off. How the values were chosen is not on record; `python -m benchmarks.optimiser` shows what a change does.
"""
