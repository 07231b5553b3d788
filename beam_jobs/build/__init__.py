"""Days and documents -> training shards: click pairs behind the privacy gate, random negatives, hashed words."""
