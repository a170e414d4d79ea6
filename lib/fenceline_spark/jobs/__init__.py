"""Jobs that keep a log useful: each is a function that takes a session of Spark, and a command of ``fenceline spark``.

Rule: a job that dies at any point leaves a part that counts, or nothing that counts, so that it can be run again.
"""

from __future__ import annotations

from fenceline_spark.jobs.archiving import archive, archived, verify_archive
from fenceline_spark.jobs.auditing import audit, audit_archive
from fenceline_spark.jobs.compaction import compact
from fenceline_spark.jobs.forget import forget
from fenceline_spark.jobs.replaying import replay

__all__ = ["archive", "archived", "audit", "audit_archive", "compact", "forget", "replay", "verify_archive"]
