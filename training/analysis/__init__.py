"""What a trained tower does as it reads (section V-A, appendices B, C, E): traces, keywords, topics, input gates."""
