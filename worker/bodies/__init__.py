"""The bodies of this deployment: every module here is imported at start-up, and each function under `@body` is registered.

`moorage up --bodies DIR` and `moorage deploy --bodies DIR` put another folder in the place of this one.
"""
