"""The paper's evaluation: its cities, its numbers, and ours beside them."""
