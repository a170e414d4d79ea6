"""Adapters: the two ports, on S3 and DynamoDB (``aws``) and on SQLite (``sqlite``).

Rule: only adapters import boto3, botocore and sqlite3 (and ``client.signing``).

Not here: the ports (``fenceline.ports``), and the choice of an adapter (``fenceline_http.wiring``).
"""
