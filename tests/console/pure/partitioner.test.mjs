import test from "node:test";
import assert from "node:assert/strict";
import { murmur2, partitionOf } from "../../../lib/fenceline_console/page/partitioner.js";

// Kafka's own vectors are among these; the clients of this project compute the same.
const HASHES = [["", 275646681], ["a", -1563381124], ["ab", 316155434], ["abc", 479470107], ["abcd", -1323649548], ["21", -973932308], ["foobar", -790332482], ["a-little-bit-long-string", -985981536], ["a-little-bit-longer-string", -1486304829], ["lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971], ["Zoë", -1306457314]];

test("a key leads to the partition that every client sends it to", () => {
  for (const [key, hash] of HASHES) {
    const octets = new TextEncoder().encode(key);
    assert.equal(murmur2(octets), hash, key);
    assert.equal(partitionOf(octets, 7), (hash & 0x7fffffff) % 7);
  }
});
