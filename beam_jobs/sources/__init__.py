"""The forms a log can have: each source turns lines into schemas.log_row.LOG_ROW."""
