"""The HTTP contract: routes, requests, responses, OpenAPI, and the wiring of a process."""
