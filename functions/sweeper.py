"""The sweeper function: one bounded run of the sweeper, by a schedule."""

from fenceline.quiet_start import QuietStart

with QuietStart():
    import fenceline.compaction.compact
    import fenceline.service.partitions
    import fenceline.service.topic_deletion
    import fenceline.service.topics
    from fenceline_http import wiring
    from functions.scheduled import sweep
    from functions.telemetry.observed import running

    handler = running("sweeper", sweep.run, wiring.service())
