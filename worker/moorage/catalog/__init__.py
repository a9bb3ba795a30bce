"""The catalog: kinds, credentials and grants, webhook senders, destinations, scopes."""
