"""A sweep: many trainings that differ in a few fields, their trials side by side, and a table of them, best first."""
