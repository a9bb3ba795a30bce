"""The kernel: errors, ids, instants, canonical JSON and limits. It imports nothing of ours."""
