"""What every test gets: the clause plugin."""

pytest_plugins = ["tests.clauses"]
