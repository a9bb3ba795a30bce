"""The SQL of leases. An epoch only grows, and is kept when a lease is released."""

# Takes the lease when nobody holds it: no row, released, or expired (expires_at = now is expired). One statement decides.
ACQUIRE = """
INSERT INTO leases (key, epoch, owner, expires_at) VALUES (:key, 1, :owner, :expires_at)
ON CONFLICT (key) DO UPDATE SET epoch = epoch + 1, owner = excluded.owner, expires_at = excluded.expires_at
WHERE leases.expires_at IS NULL OR leases.expires_at <= :now
RETURNING key, epoch, owner, expires_at
"""

# The lease is held under this epoch by this owner, or was: anyone later has a larger epoch.
IS_MINE = "SELECT 1 FROM leases WHERE key = :key AND epoch = :epoch AND owner = :owner"

# ... and it has not run out.
IS_CURRENT = "SELECT 1 FROM leases WHERE key = :key AND epoch = :epoch AND owner = :owner AND expires_at > :now"

# Extends; never shortens.
RENEW = """
UPDATE leases SET expires_at = max(expires_at, CAST(:expires_at AS INTEGER)) WHERE key = :key AND epoch = :epoch
RETURNING key, epoch, owner, expires_at
"""

# Gives the lease up and keeps the epoch.
RELEASE = "UPDATE leases SET owner = NULL, expires_at = NULL WHERE key = :key AND epoch = :epoch"

# Reads one lease.
SHOW = "SELECT key, epoch, owner, expires_at FROM leases WHERE key = :key"
