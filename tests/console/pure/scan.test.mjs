import test from "node:test";
import assert from "node:assert/strict";
import { Lane, Search, latest } from "../../../lib/fenceline_console/page/scan.js";

/** Logs as a service has them: times per partition, pages of so many records at most; null is an offset without a record. */
function service(logs, { most = Infinity, start = 0 } = {}) {
  const asked = [];
  const read = async (partition, offset, count) => {
    asked.push([partition, offset, count]);
    const records = [];
    let position = Math.max(offset, start);
    for (; position < logs[partition].length && records.length < Math.min(count, most); position += 1)
      if (logs[partition][position] !== null) records.push({ partition, offset: position, timestamp: logs[partition][position], size: 1 });
    return { records, position };
  };
  return { read, asked };
}
const lanes = (logs, read, isBack, window) => logs.map((log, p) => new Lane(p, 0, log.length, isBack, read, window));
async function all(logs, given, isNewest, { window = 1000, holds = () => true, count = Infinity } = {}) {
  const { read, asked } = service(logs, given);
  const found = [];
  const search = new Search(lanes(logs, read, isNewest, window), isNewest, holds);
  await search.more(count, { isStopped: () => false, found: (some) => found.push(...some) });
  return { found, search, asked };
}
const ids = (found) => found.map((r) => `${r.partition}:${r.offset}`).join(" ");

// A small generator with a seed, so that each run tries the same logs.
const random = (seed) => () => (seed = (seed * 1103515245 + 12345) % 2147483648) / 2147483648;

test("whatever pages are cut to, each record comes once, in its log's order, from both ends", async () => {
  for (let seed = 1; seed <= 120; seed += 1) {
    const r = random(seed);
    const logs = Array.from({ length: 1 + Math.floor(r() * 4) }, () => Array.from({ length: Math.floor(r() * 60) }, () => (r() < 0.2 ? null : Math.floor(r() * 100))));
    for (const isNewest of [true, false]) {
      const { found } = await all(logs, { most: 1 + Math.floor(r() * 9) }, isNewest, { window: 1 + Math.floor(r() * 30) });
      for (const [p, log] of logs.entries()) {
        const want = log.map((t, o) => (t === null ? -1 : o)).filter((o) => o >= 0);
        assert.deepEqual(found.filter((x) => x.partition === p).map((x) => x.offset), isNewest ? want.reverse() : want, `seed ${seed}`);
      }
    }
  }
});
test("between partitions the time decides", async () => {
  assert.equal(ids((await all([[1, 4, 9], [2, 3, 10]], {}, true)).found), "1:2 0:2 0:1 1:1 1:0 0:0");
  assert.equal(ids((await all([[1, 4, 9], [2, 3, 10]], {}, false)).found), "0:0 1:0 1:1 0:1 0:2 1:2");
});
test("a time that runs backwards breaks no partition's order", async () => {
  assert.equal(ids((await all([[9, 1, 5], [4]], {}, true)).found), "0:2 1:0 0:1 0:0");
});
test("pages that are cut by bytes lose none of the newest records", async () => {
  const { found } = await all([Array.from({ length: 500 }, (_, i) => i)], { most: 3 }, true, { count: 5 });
  assert.equal(ids(found), "0:499 0:498 0:497 0:496 0:495");
});
test("a search says what it looked at, stops at what it found, and goes on there", async () => {
  const log = Array.from({ length: 5000 }, (_, i) => i);
  const { read } = service([log]);
  const search = new Search(lanes([log], read, true), true, (r) => r.offset % 10 === 0);
  const found = [];
  const to = { isStopped: () => false, found: (some) => found.push(...some) };
  await search.more(2, to);
  assert.deepEqual([ids(found), search.looked, search.bytes, search.isDone], ["0:4990 0:4980", 20, 20, false]);
  await search.more(1, to);
  assert.deepEqual([found.at(-1).offset, search.looked], [4970, 30]);
  await search.more(Infinity, to);
  assert.deepEqual([found.length, search.looked, search.isDone], [500, 5000, true]);
});
test("a request that fails is told, and the search goes on where it was", async () => {
  const log = Array.from({ length: 30 }, (_, i) => i);
  const { read } = service([log, log]);
  let isGone = false;
  const search = new Search(lanes([log, log], async (...given) => { if (isGone) throw new Error("gone"); return read(...given); }, false, 5), false, () => true);
  const found = [];
  const to = { isStopped: () => false, found: (some) => found.push(...some) };
  await search.more(7, to);
  isGone = true;
  await assert.rejects(search.more(Infinity, to), /gone/);
  isGone = false;
  await search.more(Infinity, to);
  assert.deepEqual([found.length, new Set(found.map((r) => `${r.partition}:${r.offset}`)).size], [60, 60]);
});
test("offsets without records are passed in windows that grow", async () => {
  const log = [1, ...Array(100000).fill(null), 2];
  const { found, asked } = await all([log], {}, true, { window: 10 });
  assert.equal(ids(found), "0:100001 0:0");
  assert.ok(asked.length < 30, `${asked.length} requests`);
});
test("a log start that moves on while it is read ends the way back there", async () => {
  const { read } = service([Array.from({ length: 100 }, (_, i) => i)], { start: 90 });
  const found = [];
  const search = new Search([new Lane(0, 0, 100, true, read, 7)], true, () => true);
  await search.more(Infinity, { isStopped: () => false, found: (some) => found.push(...some) });
  assert.equal(found.length, 10);
});
test("a burst shows its newest records and names what it skips", async () => {
  const log = Array.from({ length: 5000 }, (_, i) => i);
  for (const most of [Infinity, 7]) {
    const { read } = service([log, log], { most });
    const { records, skipped } = await latest([{ partition: 0, from: 100, end: 5000 }, { partition: 1, from: 4990, end: 5000 }], read, 50);
    assert.equal(records[0].offset, 4999);
    for (const p of [0, 1]) {
      const seen = records.filter((r) => r.partition === p).map((r) => r.offset);
      const gap = skipped.find((s) => s.partition === p);
      assert.deepEqual(seen, Array.from({ length: seen.length }, (_, i) => 4999 - i));
      assert.equal(gap?.end ?? (p ? 4990 : 100), seen.at(-1), `pages of ${most}`);
    }
    assert.equal(skipped[0].from, 100);
    if (most === 7) assert.ok(records.length < 120); else assert.equal(records.length, 60);
  }
});
