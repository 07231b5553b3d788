"""Beam under every job: runners and what they need beside the pipeline, exchanges of Arrow rows, progress, counters."""
