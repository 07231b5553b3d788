"""Log formats: each source turns lines into search_log.LOG_ROW."""
