"""From roads and walks to problems, and from problems to a verified bundle."""
