"""Requests by topic name: a module for each capability, over the packages below."""
