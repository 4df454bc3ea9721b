"""Releasing locations by a bundle: the public rule from histories to rows, and traces perturbed in bulk."""
