"""The documentation site: builds it, and writes the pages that are made from the code."""
