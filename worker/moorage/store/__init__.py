"""The store: the Database and Blobs ports, the Transaction, and the adapters that run on the host."""
