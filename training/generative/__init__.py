"""The generative half of VAR-Siamese (Deudon; docs/model.md section 9): a vector is to say a text, word by word."""
