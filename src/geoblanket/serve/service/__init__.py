"""The HTTP service: verified bundles for everyone, reports for the vehicle that it runs on, and the web page."""
