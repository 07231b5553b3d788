"""Search log -> private daily aggregate -> training shards, as Beam jobs on Arrow batches."""
