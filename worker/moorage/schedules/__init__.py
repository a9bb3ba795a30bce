"""Schedules: what is started again and again, by cron or interval."""
