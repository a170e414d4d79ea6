"""The notifier function: it informs other regions, and its own replicator, of new segments."""

from fenceline.quiet_start import QuietStart

with QuietStart():
    import fenceline.log.topic_objects
    from fenceline_http import wiring
    from functions.replication.notify import Notifier
    from functions.telemetry.observed import running

    handler = running("notifier", Notifier(wiring.queues_of).run, wiring.service())
