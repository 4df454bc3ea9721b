"""The lattice: planar Laplace noise between coordinates of a whole city, in whole numbers."""
