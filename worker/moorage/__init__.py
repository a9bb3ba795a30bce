"""Moorage: a durable coordination runtime on one Cloudflare deployment. ARCHITECTURE.md draws the house."""

__version__ = "0.1.0"
