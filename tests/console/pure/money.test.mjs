// Dollars as text.
import assert from "node:assert/strict";
import test from "node:test";
import { dollars, perMonth } from "../../../lib/fenceline_console/page/money.js";

test("dollars have cents, and below one two figures that say something", () => {
  assert.deepEqual([0, 1234.5, 1, 0.5, 0.0123, 0.0000176, 1e-9].map((n) => dollars(n)), ["$0", "$1,234.50", "$1.00", "$0.50", "$0.012", "$0.000018", "below $0.000001"]);
  assert.deepEqual([0.004, 0.01].map((n) => dollars(n, 0.01)), ["below $0.01", "$0.010"]);
});

test("a month costs by the GiB", () => assert.equal(perMonth(3 * 1024 ** 3, 0.023), 0.069));
