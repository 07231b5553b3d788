"""What a recipe learns: what turns shards into examples, and examples into a loss and its gradient."""
