// The plan of a move: the numbers and the warnings of `fenceline failover`, as tests/cli/test_failover.py has them.
import assert from "node:assert/strict";
import test from "node:test";
import { command, hasMoved, howMany, lacking, marksOf, repeats, warnings } from "../../../lib/fenceline_console/page/move.js";

const cursor = (partition, mark_delete_offset, backlog) => ({ partition, mark_delete_offset, backlog });
const subscription = (...partitions) => ({ name: "s", replicate_subscription_state: true, partitions });
const A = subscription(cursor(0, 100, 3), cursor(1, 50, 0)), B = subscription(cursor(0, 80, 10), cursor(1, 40, 2));
const link = (region, given) => ({ region, connected: true, suspended: false, lag_records: 0, lag_ms: 0, last_seen_at: 1_700_000_000_000, answered_at: null, problem: null, ...given });
const plan = (given) => ({ partitions: marksOf(A, B.partitions), silence: null, left: A, lacked: null, right: B, link: link("a"), reverse: null, ...given });

test("about as many records repeat as only the region that is left knows as acknowledged", () => {
  assert.equal(repeats(plan()), 9);
  assert.equal(howMany(plan()), "about 9 records repeat");
  assert.deepEqual(warnings(plan(), "a", "b"), []);
});

test("a silent region makes the number an upper bound", () => {
  const silent = plan({ silence: "STORE_UNAVAILABLE: in a: no answer", left: null, partitions: marksOf(null, B.partitions) });
  assert.equal(howMany(silent), "at most 12 records repeat");
  assert.deepEqual(warnings(silent, "a", "b"), ["a does not answer, so consumers there may go on; b last saw it at 2023-11-14T22:13:20.000Z: STORE_UNAVAILABLE: in a: no answer"]);
});

test("a subscription that is created begins at the log start", () => {
  assert.equal(howMany(plan({ silence: "x", left: null, right: null, partitions: marksOf(null, [cursor(0, 4, 1)]) })), "at most 1 record repeats, from the log start on");
});

for (const [row, expected] of [
  [{ lag_records: 5 }, "b lacks 5 of the records that a has written; consumers in b do not see them before they have arrived"],
  [{ lag_records: 5, problem: "it refused" }, "b lacks 5 of the records that a has written; consumers in b do not see them until the link works: it refused"],
  [{ connected: false, lag_records: null, problem: "it is c" }, "b does not hear from a; consumers in b do not see what has not arrived until the link works: it is c"],
  [{ suspended: true }, "b has suspended a; consumers in b do not see what has not arrived until the link works"],
  [{ problem: "another history" }, "b takes no records from a; consumers in b do not see what has not arrived until the link works: another history"],
])
  test(`a broken link is a warning: ${expected}`, () => assert.deepEqual(warnings(plan({ link: link("a", row) }), "a", "b"), [expected]));

test("a link that is broken in the other direction is a warning, too", () => {
  assert.deepEqual(warnings(plan({ reverse: link("b", { connected: false, problem: "away" }) }), "a", "b"), ["a does not hear from b; marks may not follow, and b may lack records: away"]);
});

test("a smaller backlog is a warning where no lag explains it", () => {
  const left = subscription(cursor(0, 100, 10)), right = subscription(cursor(0, 100, 7));
  const of = (lag) => lacking(plan({ left, partitions: marksOf(left, right.partitions), link: link("a", { lag_records: lag }) }));
  assert.deepEqual([0, 2, 3].map(of), [3, 1, 0]);
});

test("partitions that one region lacks are named, and do not repeat", () => {
  const partitions = marksOf(A, [cursor(0, 80, 10)]);
  assert.deepEqual(partitions[1], { partition: 1, fromMark: 50, fromBacklog: 0, toMark: null, toBacklog: null });
  assert.match(warnings(plan({ partitions }), "a", "b")[0], /^b has no partition 1/);
});

test("marks have followed a snapshot when it is complete and each mark that it lets move has moved", () => {
  const snapshot = (partition, local_offset, b) => ({ snapshot_id: "snap", partition, local_offset, offsets: { b } });
  const found = (given) => ({ pending: [], snapshots: [snapshot(0, 90, 88), snapshot(1, 50, 40)], ...given });
  assert.equal(hasMoved(found({ pending: [{ snapshot_id: "snap" }] }), "snap", A, B, "b"), false);
  assert.equal(hasMoved(found({ snapshots: [] }), "snap", A, B, "b"), false);
  assert.equal(hasMoved(found(), "snap", A, B, "b"), false); // partition 0 is at 80 and may go to 88
  assert.equal(hasMoved(found(), "snap", A, subscription(cursor(0, 88, 4), cursor(1, 40, 2)), "b"), true);
});

test("the command names a variable for the URL of each region", () => {
  assert.equal(command("t", "s", "eu-west-1", "b"), "fenceline failover t s --from eu-west-1=$URL_EU_WEST_1 --to b=$URL_B");
});
