"""What `make bench` runs beside `fenceline bench`, which users point at their own stores. Not shipped.

``real_servers`` runs it on S3 and DynamoDB servers; ``functions`` measures bundles and cold starts; ``spark`` is
`make bench-spark`.
"""
