# ruff: noqa: S608 - statements are put together from constants only
"""The SQL of holding a claimed record against the kinds that a credential may claim."""

# The record is of one of these kinds: names, and prefixes that end in *. {kind} is where its kind stands.
OF_KINDS = """EXISTS (
    SELECT 1 FROM json_each(:granted) AS granted WHERE granted.value = {kind} OR (
        substr(granted.value, -1) = '*'
        AND substr({kind}, 1, length(granted.value) - 1) = substr(granted.value, 1, length(granted.value) - 1)
    )
)"""
IS_OF_KINDS = f"SELECT 1 FROM records WHERE id = :record AND {OF_KINDS.replace('{kind}', 'records.kind')}"
