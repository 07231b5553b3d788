"""What a command shows in the terminal."""
