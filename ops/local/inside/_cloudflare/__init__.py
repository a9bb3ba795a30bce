"""Stands in for the package that the platform puts in front of a Worker; workers-runtime-sdk patches modules through it."""
