"""What stands between a run and a worse search: promotion of a model, and drift between days."""
