"""What PySpark finds without an import: it looks for ``DefaultSource`` in top-level modules named ``pyspark_…``.

Not here: the data source; see ``fenceline_spark.data_source``.
"""

from __future__ import annotations

from fenceline_spark.data_source import FencelineDataSource as DefaultSource

__all__ = ["DefaultSource"]
