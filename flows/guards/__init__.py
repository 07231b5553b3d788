"""Guards against a worse search: promotion of a model, and drift between days."""
