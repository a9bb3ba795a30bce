"""Guards: durable rows that say that an outside effect may be in flight, and what may remove them."""
