"""The protocol in a model checker. README.md says how to read and run it."""
