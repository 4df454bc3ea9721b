"""Mechanisms: problem, optimiser, exact repair and verification, exact sampling, baselines and bundles; arrays only."""
