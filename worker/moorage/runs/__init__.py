"""Durable runs: admission, owners, the journal's operations, stopping, rewinding, and the record of it all."""
