"""Days -> relevance judgments derived from their clicks, corrected for the position that a result was shown at."""
