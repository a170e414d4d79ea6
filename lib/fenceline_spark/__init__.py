"""fenceline for PySpark: a source, an exactly-once sink, and jobs that keep a log useful.

Rule: source and sink use the service's HTTP API, and fetch segments by their URLs. Only jobs use the stores.

Rule: only modules that run in Spark import pyspark, so that the command line starts without it.

Not here: the protocol of the log (``fenceline``).
"""
