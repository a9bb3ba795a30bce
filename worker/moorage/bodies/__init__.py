"""Writing and driving bodies: the decorator, the `Run` that a body gets, and the engine behind it."""
