"""What every job shares on Beam: runners and their services, exchanges of Arrow rows, progress, counters."""
