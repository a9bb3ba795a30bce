"""Executions and what they recorded: entry keys, the journal's rows, and waking who waits. A primitive."""
