// What a link between two regions means in words.
import assert from "node:assert/strict";
import test from "node:test";
import { lasting, newest, refusedBatch, total, verdict } from "../../../lib/fenceline_console/page/links.js";

const link = (given) => ({ region: "b", connected: true, suspended: false, lag_records: 0, lag_ms: 0, last_seen_at: 1, answered_at: null, problem: null, ...given });

test("a copy is whole only where the region is heard, nothing is missing and nothing is wrong", () => {
  assert.deepEqual(verdict(link({}), "a"), { kind: "whole", text: "a has all that b has written" });
  assert.equal(verdict(link({ lag_records: 1200, lag_ms: 3200 }), "a").text, "a lacks 1,200 of the records that b has written, the oldest for 3.2 s");
  assert.equal(verdict(link({ lag_records: 1200, lag_ms: 3200 }), "a").kind, "behind");
  assert.equal(verdict(link({ problem: "another order" }), "a").kind, "broken");
  assert.deepEqual(verdict(link({ connected: false, lag_records: null, lag_ms: null }), "a"), { kind: "unknown", text: "a does not hear from b, so what a lacks is not known" });
  assert.equal(verdict(link({ lag_records: null, lag_ms: null }), "a").kind, "unknown");
  assert.equal(verdict(link({ connected: false, lag_records: null, problem: "refused" }), "a").kind, "broken");
});

test("the batch at which a link stopped is read from its problem, and from no other", () => {
  const problem = "a batch of the source is refused, and nothing after it is taken; append anew there what it should say, and skip it here: from=12 to=15 reason=no to=3 CRC partition=2";
  assert.deepEqual(refusedBatch(link({ problem })), { from: 12, to: 15, partition: 2 });
  assert.equal(refusedBatch(link({ problem: "the source no longer keeps records: partition=0 from=1 to=2 records=1" })), null);
  assert.equal(refusedBatch(link({})), null);
});

test("the newest snapshot of each partition is shown", () => {
  const one = (partition, local_offset) => ({ partition, local_offset });
  assert.deepEqual(newest([one(1, 5), one(0, 9), one(1, 7), one(0, 2)]), [one(0, 9), one(1, 7)]);
});

test("a duration is in the unit that says it shortest", () => {
  assert.deepEqual([0, 340, 3200, 59_000, 90_000, 7_200_000, 172_800_000].map(lasting), ["0 ms", "340 ms", "3.2 s", "59 s", "1.5 min", "2 h", "2 d"]);
});

test("what is not known of one partition is not known of all, and of none nothing is", () => {
  const has = (kept, a, b) => ({ kept, of: { a, b } });
  const plain = (all) => ({ kept: all.kept, of: { ...all.of } });
  assert.deepEqual(plain(total([has(3, 2, 1), has(4, 2, null)], ["a", "b"])), has(7, 4, null));
  assert.deepEqual(plain(total([], ["a", "b"])), has(null, null, null));
});
