"""Records: publish, match, claim, settle; dead letters and lineage."""
