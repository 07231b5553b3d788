"""The search service: its HTTP API and its page."""
