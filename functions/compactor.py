"""The compactor function: compaction, by a schedule or by hand."""

from fenceline.quiet_start import QuietStart

with QuietStart():
    import fenceline.compaction.compact
    import fenceline.service.partitions
    import fenceline.service.topics
    from fenceline_http import wiring
    from functions.scheduled import compact
    from functions.telemetry.observed import running

    handler = running("compactor", compact.run, wiring.service())
