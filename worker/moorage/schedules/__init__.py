"""Schedules: bodies that are started, or records that are published, again and again."""
