"""Bundles: verified mechanisms of a city's zones in one file, signatures, and what a device accepts."""
