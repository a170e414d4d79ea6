"""The commands, a module each, and what single commands need."""
