import assert from "node:assert/strict";
import { test } from "node:test";
import { numbers, ranges } from "../../../lib/fenceline_console/page/ranges.js";

test("numbers and ranges mean partitions, each once and in order", () => {
  assert.deepEqual(numbers("3-5, 0, 4"), [0, 3, 4, 5]);
  assert.deepEqual(numbers("7"), [7]);
});

test("a text that is not whole means none", () => {
  for (const text of ["", "one", "1-", "5-3", "-1", "0,,1", "0-999999999", "1e3"]) assert.equal(numbers(text), null, text);
});

test("numbers that follow each other are told as one range", () => {
  assert.equal(ranges([0, 1, 2, 5, 7, 8]), "0–2, 5, 7–8");
  assert.equal(ranges([]), "");
});
