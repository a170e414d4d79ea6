"""The consumer: a member of a group that shares out partitions by itself (contract, "Groups")."""
