"""What every test gets: the clause plugin, and local edges on demand."""

pytest_plugins = ["tests.clauses", "tests.edge.edges"]
