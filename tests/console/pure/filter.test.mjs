import test from "node:test";
import assert from "node:assert/strict";
import { Part } from "../../../lib/fenceline_console/page/format.js";
import { filter } from "../../../lib/fenceline_console/page/filter.js";

const record = (key, value, headers = []) => ({ key: new Part(key, "utf8"), value: new Part(value, "utf8"), headers: headers.map(([n, v]) => [n, new Part(v, "utf8")]) });
const holds = (r, yes, no) => {
  for (const text of yes) assert.ok(filter(text)(r), text);
  for (const text of no) assert.ok(!filter(text)(r), text);
};

test("members, keys, headers and words are found, and several terms all hold", () => {
  const r = record("ann", '{"status":"paid","total":120.5,"a":{"b":"two words"},"n":null,"__proto__":{"x":1}}', [["trace", "7fa"], ["a.b", "c"]]);
  holds(r,
    ["paid", "PAID", "key:ann", "key:a*", "header.trace:7f*", "header.a.b:c", ".total>100", ".total>=120.5", ".total=120.50", ".status=paid", "-refused", "value.status!=refused key:ann", '"two words"', '.a.b="two words"', ".a.b!=x", ".__proto__.x=1", ".n=null", ""],
    ["refused", "key:an", ".total<100", ".total>abc", ".nothing=1", ".nothing!=1", "header.other:1", "-paid", ".constructor=x", ".toString=x", "paid key:ben", '"two  words"', '.status="pai*"']);
});
test("long numbers are compared by their digits", () => {
  const r = record(null, '{"id":9007199254740993,"d":0.1,"t":"9007199254740993"}');
  holds(r, [".id=9007199254740993", ".id>9007199254740992", ".id<9007199254740994", ".t=9007199254740993", ".d=0.1"], [".id=9007199254740992", ".id=9007199254740994", "key:null", "null"]);
});
test("bytes and values without JSON match no word and no member", () => {
  const r = { key: new Part("/w==", "base64"), value: new Part("/w==", "base64"), headers: [] };
  holds(r, ["-x"], ["x", ".a=1", "key:x"]);
});
test("a filter is data: nothing of it runs, whatever it is", () => {
  for (const text of ['"', "-", "key:", ".=1", "..a=1", "header.:x", "((((", "a".repeat(10000), "\\", '"\\']) assert.equal(typeof filter(text)(record("a", "b")), "boolean");
});
