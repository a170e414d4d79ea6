"""The sessions function: sessions, named producers, ownership."""

from fenceline.quiet_start import QuietStart

with QuietStart():
    import fenceline.service.access
    import fenceline_http.handlers.sessions
    import fenceline_http.operations.sessions
    from fenceline_http import wiring
    from functions.telemetry.observed import answering

    handler = answering("sessions", wiring.service())
