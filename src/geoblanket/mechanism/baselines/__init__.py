"""Closed-form and published mechanisms, each a function of a problem that returns a verified mechanism."""
