"""One function for each route."""
