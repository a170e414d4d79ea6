"""The admin function: topics, the service itself, and paths that no function serves."""

from fenceline.quiet_start import QuietStart

with QuietStart():
    import fenceline.compaction.compact
    import fenceline.log.trim
    import fenceline.read.offsets
    import fenceline.service.partitions
    import fenceline.service.topic_deletion
    import fenceline.service.topics
    import fenceline_http.handlers.admin
    import fenceline_http.operations.admin
    from fenceline_http import wiring
    from functions.telemetry.observed import answering

    handler = answering("admin", wiring.service())
