"""``fenceline spark replay``, run and printed: the positions as offsets, and how much was written."""

from __future__ import annotations

import typer

from fenceline_cli import positions
from fenceline_cli.commands.spark.session import borrowed_session, require_topics
from fenceline_cli.options import connect, signing_region
from fenceline_cli.output import CommandError, print_json


def run(
    source: str, target: str, url: str, *, name: str, start: str, until: str, where: str | None, as_json: bool
) -> None:
    """Run a replay to its end, or continue it.

    Raises:
        CommandError: It is refused, or a task failed. What was written before counts.
    """
    from fenceline_spark.jobs import replay
    from fenceline_spark.jobs.replay_plan import ReplayError
    from fenceline_spark.jobs.replaying import check_names

    first, last = positions.parse(start, "--from"), positions.parse(until, "--until")

    def ranges() -> dict[int, tuple[int, int]]:
        found: dict[int, tuple[int, int]] = {}
        with connect(url) as client:
            for number in range(client.topic(source).partitions):
                begin, end = (one.offset_in(client, source, number, "read_committed") for one in (first, last))
                # An offset is one of every partition. A shorter partition ends before it.
                end = min(end, client.offsets(source, number).bounds.next_offset)
                found[number] = (min(begin, end), end)
        return found

    try:
        check_names(source, target, name)
        require_topics(url, source, target)
        with borrowed_session(f"replay {name}") as spark:
            done = replay(
                spark,
                source,
                target,
                name=name,
                endpoint=url,
                region=signing_region.get(),
                ranges=ranges,
                asked=f"--from {start} --until {until}",
                where=where,
            )
    except ReplayError as error:
        raise CommandError(str(error)) from error
    offsets = sum(end - begin for begin, end in done.plan.ranges.values())
    if as_json:
        shown = {str(number): list(pair) for number, pair in sorted(done.plan.ranges.items())}
        print_json({"name": name, "ranges": shown, "versions": done.versions, "written": done.written})
    elif done.written:
        what = f"offsets={offsets} versions={done.written} versions_before={done.done_before}"
        typer.echo(f"replayed {source} to {target}: {what}")
    else:
        typer.echo(f"{name} is finished: nothing was written")
