"""The optimiser: an interior-point method for the linear program, with proven bounds."""
