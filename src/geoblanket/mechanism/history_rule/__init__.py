"""The public rule from histories to rows, the distances between rows, and the check of both."""
