"""The ports on S3 and DynamoDB."""
