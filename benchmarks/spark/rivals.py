"""The rival: Apache Kafka on this machine, and Spark's connector to it.

Rule: the broker has its distribution's own settings, and the connector its defaults, unless a row of the table says
otherwise.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from benchmarks.spark import processes
from benchmarks.spark.inputs import PARTITIONS
from tests.servers import install
from tests.servers.run import kafka

VERSION = install.KAFKA

TUNED = {
    "kafka.max.poll.records": "20000",
    "kafka.fetch.max.bytes": "8388608",
    "kafka.max.partition.fetch.bytes": "8388608",
}


@dataclass(frozen=True)
class Kafka:
    """A broker that runs.

    Args:
        pid: Of the broker.
    """

    address: str
    pid: int

    def create_topic(self, topic: str) -> None:
        """Make a topic of ``PARTITIONS`` partitions, so that no producer meets one whose leaders are not known yet."""
        asyncio.run(_create_topic(self.address, topic))

    def read(self, spark: Any, topic: str, options: Mapping[str, str]) -> Any:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", self.address)
        return reader.option("subscribe", topic).options(**options).load()

    def writer(self, writer: Any, topic: str, options: Mapping[str, str]) -> Any:
        """Return a DataFrame's writer, of a batch or a stream, to a topic."""
        return (
            writer.format("kafka")
            .option("kafka.bootstrap.servers", self.address)
            .option("topic", topic)
            .options(**options)
        )


async def _create_topic(address: str, topic: str) -> None:
    client = AIOKafkaAdminClient(bootstrap_servers=address)
    await client.start()
    try:
        await client.create_topics([NewTopic(topic, PARTITIONS, 1)])
    finally:
        await client.close()


@contextmanager
def broker() -> Iterator[Kafka]:
    """Lend a broker whose topics have ``PARTITIONS`` partitions.

    Raises:
        CannotInstall, CannotStart: There is none on this machine.
    """
    before = processes.children_of(os.getpid())
    with kafka(partitions=PARTITIONS) as address:
        (pid,) = processes.children_of(os.getpid()) - before
        yield Kafka(address, pid)


def connector(spark_version: str) -> tuple[str, list[Path]]:
    """Return the connector's version, and its jars.

    Raises:
        CannotInstall: It can't be had on this machine.
    """
    version, directory = install.spark_sql_kafka(spark_version)
    return version, sorted(directory.glob("*.jar"))
