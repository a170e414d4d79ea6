"""The produce function: appends."""

from fenceline.quiet_start import QuietStart

with QuietStart():
    import fenceline.service.by_key
    import fenceline_http.handlers.produce
    import fenceline_http.operations.produce
    from fenceline_http import wiring
    from functions.telemetry.observed import answering

    handler = answering("produce", wiring.service())
