"""A sweep: many trainings that differ in a few fields, run as parallel trials, and a table of them, best first."""
