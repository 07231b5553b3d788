"""The contracts the stages meet in: log rows, words and trigrams, day, shard, judgments, release, manifest."""
