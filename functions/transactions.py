"""The transactions function: producer ids, coordinators, transactions."""

from fenceline.quiet_start import QuietStart

with QuietStart():
    import fenceline.service.transactions
    import fenceline_http.handlers.transactions
    import fenceline_http.operations.transactions
    from fenceline_http import wiring
    from functions.telemetry.observed import answering

    handler = answering("transactions", wiring.service())
