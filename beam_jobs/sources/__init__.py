"""The forms a log can have: each source turns lines into log_row.LOG_ROW."""
