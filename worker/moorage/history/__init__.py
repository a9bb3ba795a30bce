"""History: what happened, appended in the transaction that made it happen."""
