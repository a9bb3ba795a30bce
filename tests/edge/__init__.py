"""Tests on a real workerd."""
