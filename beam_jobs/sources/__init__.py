"""Log formats: each source turns lines into log_row.LOG_ROW."""
