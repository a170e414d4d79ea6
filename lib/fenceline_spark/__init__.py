"""fenceline for PySpark: a source, an exactly-once sink, and jobs that keep a log useful.

Rule: it reads and writes over the service's HTTP API, and fetches segments by their URLs. Only jobs use the stores.

Rule: only what runs in Spark imports pyspark, so that the command line starts without it.

Not here: the protocol of the log (``fenceline``).
"""
