"""Artifacts: payloads too large for a body. The record carries digest, media type and size; the bytes lie in the bucket."""
