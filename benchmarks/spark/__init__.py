"""``python -m benchmarks.spark``: the cost of Spark on fenceline, beside spark-sql-kafka and a broker, in one run.

Rule: both systems run on this machine from the first measurement to the last, and are measured by turns. The first
rounds are not counted. A ratio is the median of the rounds' ratios.

Rule: a figure counts every process that takes part: Spark, its Python workers, and the system's own server.

Not here: how fast the codec alone is (``fenceline bench``); how often a micro-batch asks the stores (a test counts it).
"""
