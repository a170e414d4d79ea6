"""One partition and its items: checkpoints, limits, topics, what is remembered."""
