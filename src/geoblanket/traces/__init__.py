"""Traces: GPS points of any source to one clean table (vehicle, trip, time, lat, lon)."""
