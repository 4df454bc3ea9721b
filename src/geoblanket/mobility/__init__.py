"""Mobility: traces on roads to walks, the place of a vehicle on a fixed clock."""
