"""Timers: what is due and the Clock that fires it, driven by an alarm and never by polling."""
