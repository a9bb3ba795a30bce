"""The local edge: the deployed bundle on a real workerd, with D1, R2 and Durable Objects in a folder."""
