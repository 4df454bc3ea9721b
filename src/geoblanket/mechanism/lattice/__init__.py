"""The lattice: planar Laplace noise between coordinates of a whole city, in whole numbers, and the anchor of a trip."""
