"""Bundles: verified mechanisms of a city's zones in one file, its signature, and what a device accepts of it."""
