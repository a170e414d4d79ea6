"""``fenceline lock``, and the process that guards its command."""
