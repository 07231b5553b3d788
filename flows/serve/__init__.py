"""The search service: what it answers over HTTP, and the page that a person looks at."""
