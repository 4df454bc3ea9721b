"""The system over a network: the HTTP service with its page, and the gateway. The system uses none of it."""
