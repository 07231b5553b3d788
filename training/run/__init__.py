"""One training: its start, its workers here or on Ray, its reports, and resuming after a kill."""
