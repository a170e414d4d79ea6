"""The subscriptions function: subscriptions, groups, and the offsets of groups."""

from fenceline.quiet_start import QuietStart

with QuietStart():
    import fenceline.groups.member_guard
    import fenceline.service.groups
    import fenceline.service.subscriptions
    import fenceline.subscriptions.cursors
    import fenceline_http.handlers.subscriptions
    import fenceline_http.operations.subscriptions
    from fenceline_http import wiring
    from functions.telemetry.observed import answering

    handler = answering("subscriptions", wiring.service())
