"""The ports on S3 and DynamoDB.

``s3`` is the object store, by ``s3_http``, ``s3_listing`` and ``sigv4``; ``dynamodb`` is the item store. ``client`` and
``credentials`` serve both.
"""
