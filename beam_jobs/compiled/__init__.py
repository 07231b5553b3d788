"""What of reading a log is compiled, where the package was built with a compiler. Its definition is in Python."""
