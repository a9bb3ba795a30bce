"""What the order's body imports."""

PRICE = 4
