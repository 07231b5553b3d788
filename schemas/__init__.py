"""The contracts between stages: log rows, words and trigrams, day, shard, judgments, release, manifest."""
