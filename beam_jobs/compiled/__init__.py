"""The compiled part of reading a log, if the package was built with a compiler. Python functions define it."""
