"""The commands, a module each, and the helpers of single commands."""
