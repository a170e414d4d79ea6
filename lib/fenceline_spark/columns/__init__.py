"""Record batches to and from Arrow columns, without an object for each record."""
