"""The replicator function: it takes what other regions have, and does what is due between regions."""

from fenceline.quiet_start import QuietStart

with QuietStart():
    import fenceline.service.replication
    from fenceline_http import wiring
    from functions.replication.replicate import Replicating
    from functions.telemetry.observed import running

    handler = running("replicator", Replicating(wiring.queues_of).run, wiring.service())
