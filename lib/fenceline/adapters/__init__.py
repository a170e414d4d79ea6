"""Adapters: the two ports, on S3 and DynamoDB (``aws``) and on SQLite (``sqlite``).

Rule: only adapters import boto3, botocore and sqlite3 (and ``client.signing``).

Not here: the ports (``fenceline.ports``), and which adapter a process takes (``fenceline_http.wiring``).
"""
