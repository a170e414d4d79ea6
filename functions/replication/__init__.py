"""The functions that queues call in a region with peers: the notifier and the replicator ("Triggers")."""
