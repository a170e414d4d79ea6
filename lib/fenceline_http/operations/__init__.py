"""What each operation takes and answers: a module per function."""
