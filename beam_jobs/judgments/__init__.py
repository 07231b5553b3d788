"""Days -> relevance judgments derived from clicks, corrected for the positions at which results were shown."""
