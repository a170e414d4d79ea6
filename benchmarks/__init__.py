"""The benchmarks, which are not shipped: ``make bench`` runs all of them but ``spark``, which is ``make bench-spark``.

``command`` is ``fenceline bench``, also ``python -m benchmarks``: in a directory, or on a caller's bucket and table.
``real_servers`` runs it on S3 and DynamoDB servers; ``functions`` measures bundles and cold starts.
"""
