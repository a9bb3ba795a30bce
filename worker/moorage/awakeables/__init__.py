"""Awakeables: promises that the outside world resolves by posting to a token."""
