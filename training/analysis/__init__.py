"""What a trained tower does while it reads (section V-A, appendices B, C, E): traces, keywords, topics, input gates."""
