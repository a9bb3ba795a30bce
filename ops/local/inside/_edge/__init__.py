"""The Python side of the local edge: what runs inside the interpreter beside the Worker."""
