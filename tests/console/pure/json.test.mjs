import test from "node:test";
import assert from "node:assert/strict";
import { isJson, named, pretty, sourceOf } from "../../../lib/fenceline_console/page/json.js";

const shown = (text, most) => pretty(text, most).pieces.map((p) => p.text).join("");

test("what is shown keeps each number's digits and each name that occurs twice", () => {
  const text = '{"id":9007199254740993,"a":1.10,"a":1e400,"e":[],"o":{},"t":[true,null,-0.0]}';
  const view = shown(text);
  assert.equal(view, '{\n  "id": 9007199254740993,\n  "a": 1.10,\n  "a": 1e400,\n  "e": [],\n  "o": {},\n  "t": [\n    true,\n    null,\n    -0.0\n  ]\n}');
  assert.equal(view.replace(/\s/g, ""), text);
});
test("names, texts, numbers and words are told apart", () => {
  const kinds = pretty('{"a":["a:b",1,null,"c\\\\"]}').pieces.filter((p) => p.kind).map((p) => [p.kind, p.text]);
  assert.deepEqual(kinds, [["k", '"a"'], ["s", '"a:b"'], ["n", "1"], ["w", "null"], ["s", '"c\\\\"']]);
});
test("depth costs no stack", () => {
  const deep = "[".repeat(200000) + "]".repeat(200000);
  assert.ok(isJson(deep));
  assert.equal(pretty(deep, 1000).isCut, true);
});
test("a view is cut, inside a text, too", () => {
  const { pieces, isCut } = pretty(`["${"x".repeat(4_000_000)}"]`, 1000);
  assert.ok(isCut);
  assert.equal(pieces.map((p) => p.text).join("").length < 1100, true);
});
test("only JSON is JSON", () => {
  for (const no of ["{a:1}", "[1,]", "NaN", '{"a":1}x', '["\n"]']) assert.equal(isJson(no), false, no);
});
test("a row's text keeps all but the quotes of simple names", () => {
  const pieces = named('{"a":1,"b c":"x","d');
  assert.equal(pieces.map((p) => p.text).join(""), '{a:1,"b c":"x","d');
  assert.deepEqual(pieces.filter((p) => p.kind).map((p) => p.text), ["a", '"b c"']);
});
test("a member's own text is found by its path", () => {
  const text = '{"a":{"b":[10,{"c":12345678901234567890}]},"c":1,"c":2.50}';
  assert.equal(sourceOf(text, ["a", "b", "1", "c"]), "12345678901234567890");
  assert.equal(sourceOf(text, ["a", "b", "0"]), "10");
  assert.equal(sourceOf(text, ["c"]), "2.50");
  assert.equal(sourceOf(text, ["nothing"]), undefined);
});
