"""The inbox: events that come in, waits for them and their routing, and what consumers have recorded of them."""
