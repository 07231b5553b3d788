"""How well similarities tell labelled pairs apart: a model beside lexical baselines."""
