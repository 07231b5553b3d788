"""`clicktower check`: what a sample of a log reveals about it before ingest. It writes nothing."""
