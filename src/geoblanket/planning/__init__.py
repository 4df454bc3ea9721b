"""From what a report, an hour and a night may cost to an anchor, an ε and how often a vehicle reports."""
