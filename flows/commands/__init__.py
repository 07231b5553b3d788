"""One file per subcommand: its arguments, its help, its result for people."""
