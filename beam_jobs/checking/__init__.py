"""What `clicktower check` finds out about a log from a sample of it, before it is ingested. Nothing is written."""
