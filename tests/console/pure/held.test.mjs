import test from "node:test";
import assert from "node:assert/strict";
import { holds, isTimedOut, joined, placed, windows, within } from "../../../lib/fenceline_console/page/held.js";

const opened = (partition, id, start, more = {}) => ({ partition, producer_id: 7, producer_epoch: 0, start_offset: start, since: start, transactional_id: id, is_hanging: false, ...more });
const at = (partition, wait, next) => [partition, { last_stable_offset: wait, next_offset: next }];
const listed = (id, started, more = {}) => ({ transactional_id: id, state: "Ongoing", producer_id: 7, producer_epoch: 0, transaction_timeout_ms: 60, started_at: started, partitions: [], groups: [], ...more });

test("only the first that is open in a partition holds its readers up, and only where something lies after it", () => {
  const found = placed("t", [opened(1, "a", 5), opened(1, "b", 6), opened(2, "b", 9)], new Map([at(1, 5, 9), at(2, 9, 9)]));
  assert.deepEqual(found.map(holds), [true, false, false]);
  const [first, second] = joined([listed("b", 1), listed("a", 2)], found);
  assert.deepEqual([first.id, first.holds.length, first.behind.length], ["a", 1, 0]); // it began later, but holds readers up
  assert.deepEqual([second.id, second.holds.length, second.behind.length], ["b", 0, 1]);
});

test("a transaction that the list lacks is shown by what it has open, and a hanging one is not under way", () => {
  const found = placed("t", [opened(0, "theirs", 3), opened(1, "theirs", 2), opened(2, null, 1, { is_hanging: true })], new Map([at(0, 3, 4), at(1, 2, 4), at(2, 1, 4)]));
  const rows = joined([], found);
  assert.equal(rows.length, 1);
  assert.deepEqual([rows[0].state, rows[0].since, rows[0].partitions.length, rows[0].holds.length], [null, 2, 2, 2]);
});

test("a time-out ends an ongoing transaction, an extension later, and nothing one that is decided", () => {
  assert.deepEqual(joined([listed("a", 1), listed("b", 2, { expires_at: 90 }), listed("c", 3, { state: "PrepareCommit" })], []).map((r) => r.ends), [61, 90, null]);
});

test("ids that are names of an object's members are ids like others", () => {
  assert.deepEqual(joined([listed("__proto__", 1), listed("constructor", 2)], []).map((r) => r.id), ["__proto__", "constructor"]);
});

test("windows cover what is wanted, each in one request", () => {
  assert.deepEqual(windows([]), []);
  assert.deepEqual(windows([205, 3, 3, 102, 103]), [[3, 103], [103, 104], [205, 206]]);
  assert.deepEqual(windows([0, 99, 100]), [[0, 100], [100, 101]]);
});

test("its records lie between its first one and the log's end", () => {
  const [many, one] = placed("t", [opened(0, "a", 1165), opened(1, "a", 5)], new Map([at(0, 1165, 1170), at(1, 5, 6)]));
  assert.equal(within(many), "1,165 to 1,169, the last offset of the log");
  assert.equal(within(one), "5, the last offset of the log");
});

test("only an ongoing transaction is timed out, from the end of its time on", () => {
  const rows = joined([listed("a", 1), listed("c", 2, { state: "PrepareCommit" })], []);
  assert.deepEqual([60, 61].map((now) => rows.map((r) => isTimedOut(r, now))), [[false, false], [true, false]]);
});
