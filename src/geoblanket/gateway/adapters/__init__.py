"""Protocols, one module each: `read` makes a `Position` of a message, `written` a message of a `Released`."""
