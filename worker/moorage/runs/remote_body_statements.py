# ruff: noqa: S608 - statements are put together from constants only
"""The SQL of bodies that hosts outside the Worker offer: one row for each name."""

from moorage.records.admission_statements import OF_KINDS

_COLUMNS = "name, pins, effects, input_schema, result_schema, description, registered_by, updated_at"

# Offers a body; the latest offer stands.
REGISTER = f"""
INSERT INTO remote_bodies (name, build, pins, effects, input_schema, result_schema, description, registered_by, updated_at)
VALUES (:name, :build, :pins, :effects, :input_schema, :result_schema, :description, :caller, :now)
ON CONFLICT (name) DO UPDATE SET build = excluded.build, pins = excluded.pins, effects = excluded.effects,
    input_schema = excluded.input_schema, result_schema = excluded.result_schema, description = excluded.description,
    registered_by = excluded.registered_by, updated_at = excluded.updated_at
RETURNING {_COLUMNS}
"""

# One body.
BODY = f"SELECT {_COLUMNS} FROM remote_bodies WHERE name = :name"

_OF_BODIES = OF_KINDS.replace(":granted", ":seen_bodies").replace("{kind}", "remote_bodies.name")

# A page of those whose runs somebody may see, by name.
BODIES = f"""
SELECT {_COLUMNS} FROM remote_bodies WHERE name > :after AND (:seen_bodies IS NULL OR {_OF_BODIES})
ORDER BY name LIMIT CAST(:limit AS INTEGER)
"""

# Offers it no more.
REMOVE = "DELETE FROM remote_bodies WHERE name = :name"
