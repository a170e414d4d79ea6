"""The service's requests, one method each, over one transport."""
