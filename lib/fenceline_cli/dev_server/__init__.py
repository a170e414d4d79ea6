"""``fenceline dev``: the HTTP API served by this machine, with the handlers that Lambda calls."""
