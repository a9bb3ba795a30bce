"""Stands in for the platform's own package, through which workers-runtime-sdk patches other packages."""
