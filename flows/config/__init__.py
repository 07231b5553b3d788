"""The files and variables that configure a run, parsed into dataclasses and checked before anything starts."""
