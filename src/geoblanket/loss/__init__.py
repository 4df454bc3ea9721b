"""Losses: what a reported place costs the service where the vehicle is in truth at another, as a table over places."""
