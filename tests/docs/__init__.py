"""The documentation: its blocks run, its links lead somewhere, and its made pages are current."""
