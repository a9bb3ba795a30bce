"""Messages: events that come in, waits for them, and what is told to destinations."""
