"""What `clicktower doctor` looks at: small checks, each of one thing, that change nothing and take milliseconds."""
