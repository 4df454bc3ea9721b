"""What is measured of a mechanism: utility, leakage, attacks and cost."""
