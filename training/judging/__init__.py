"""Judgments by people: the best of several systems as a sheet for assessors, and filled-in sheets as qrels."""
