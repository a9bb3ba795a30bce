"""Bodies whose effects a test interrupts."""
