"""Guards against worse search results: promotion of a model, and drift between days."""
