"""The requests and answers of each operation: a module per function."""
