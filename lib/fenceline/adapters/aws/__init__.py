"""The ports on S3 and DynamoDB.

``s3`` is the object store, by ``s3_place``, ``s3_transfer`` and ``s3_rest``; ``dynamodb`` is the item store. ``client``
and ``credentials`` serve both. ``sqs`` sends to queues. ``published_peer`` and ``peer_signing`` are for peers on AWS.
"""
