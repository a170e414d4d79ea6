"""Adapters: the ports on SQLite, and on S3 and DynamoDB.

Rule: only adapters import boto3, botocore and sqlite3 (and ``client.signing``).
"""
