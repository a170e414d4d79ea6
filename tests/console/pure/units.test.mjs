import test from "node:test";
import assert from "node:assert/strict";
import { editable, setting, typed } from "../../../lib/fenceline_console/page/units.js";

test("a setting is read by its unit, and an integer beyond 2^53 to its last digit", () => {
  assert.equal(setting("retention.ms", 604800000), "7 d");
  assert.equal(setting("retention.ms", -1), "for ever");
  assert.equal(setting("retention.bytes", -1), "no limit");
  assert.equal(setting("max.message.bytes", 1048576), "1.0 MiB");
  assert.equal(setting("message.timestamp.before.max.ms", 9223372036854775807n), "no limit");
  assert.equal(setting("retention.ms", 9007199254740993n), "9,007,199,254,740,993 ms");
  assert.equal(setting("cleanup.policy", "compact"), "compact");
  assert.equal(setting("check.expected.offsets", true), "true");
  assert.equal(setting("unknown", { a: [1] }), '{"a":[1]}');
  assert.equal(setting("unknown", null), "null");
});

test("what is typed means an integer in the setting's unit, or nothing", () => {
  assert.equal(typed("retention.ms", "7 d"), 604800000n);
  assert.equal(typed("retention.ms", "-1"), -1n);
  assert.equal(typed("retention.ms", "9223372036854775807"), 9223372036854775807n);
  assert.equal(typed("max.message.bytes", "2MiB"), 2097152n);
  assert.equal(typed("max.message.bytes", "1,048,576"), 1048576n);
  for (const text of ["", "7 days", "1.5 d", "-1 d", "d", "7 constructor", "1e3"]) assert.equal(typed("retention.ms", text), null, text);
  assert.equal(typed("some.number", "7 d"), null);
});

test("what is offered to be edited means the same when it is read back", () => {
  for (const n of [0, 1, 999, 1000, 60000, 604800000, 9007199254740993n, -1]) assert.equal(typed("retention.ms", editable("retention.ms", n)), BigInt(n));
  for (const n of [1, 1023, 1024, 1048576, 5368709120]) assert.equal(typed("retention.bytes", editable("retention.bytes", n)), BigInt(n));
});
