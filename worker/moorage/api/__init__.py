"""The HTTP interface: thin routes that parse, call one operation of a room, and render its answer."""
