"""The read function: pages of records, offsets, segments."""

from fenceline.quiet_start import QuietStart

with QuietStart():
    import fenceline.groups.member_guard
    import fenceline.read.offsets
    import fenceline.read.producer_states
    import fenceline.read.reader
    import fenceline.read.segments
    import fenceline.service.partitions
    import fenceline.service.poll
    import fenceline_http.handlers.read
    import fenceline_http.operations.read
    from fenceline_http import wiring
    from functions.telemetry.observed import answering

    handler = answering("read", wiring.service())
