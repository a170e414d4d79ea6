"""The subscriptions function: subscriptions, and the offsets of groups."""

from fenceline.quiet_start import QuietStart

with QuietStart():
    import fenceline.access.ownership.read_guard
    import fenceline.service.subscriptions
    import fenceline.subscriptions.cursors
    import fenceline_http.handlers.subscriptions
    import fenceline_http.operations.subscriptions
    from fenceline_http import wiring
    from functions.telemetry.observed import answering

    handler = answering("subscriptions", wiring.service())
