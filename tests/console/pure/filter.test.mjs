import test from "node:test";
import assert from "node:assert/strict";
import { Part } from "../../../lib/fenceline_console/page/format.js";
import { filter, hints } from "../../../lib/fenceline_console/page/filter.js";

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
test("a term that looks like a field and is read as text has a hint", () => {
  const said = (text) => hints(text).map((h) => [h.read, ...h.write]);
  assert.deepEqual(said("total>600 paid"), [["total>600", ".total>600"]]);
  assert.match(hints("total>600")[0].why, /^is read as text. Members of a JSON value begin with a dot:$/);
  assert.deepEqual(said(".status = refused .total > 600"), [[".status = refused", ".status=refused"], [".total > 600", ".total>600"]]);
  assert.deepEqual(said(".total> 600 key: ann"), [[".total> 600", ".total>600"], ["key: ann", "key:ann"]]);
  assert.deepEqual(said(".total>"), [[".total>", ".total>600"]]);
  assert.deepEqual(said("trace=7f"), [["trace=7f", ".trace=7f", "header.trace=7f"]]);
  assert.deepEqual(said("-status:refused"), [["-status:refused", "-.status:refused", "-header.status:refused"]]);
  assert.deepEqual(said("offset:2404"), [["offset:2404"]]);
  assert.deepEqual(said("="), [["=", ".total>600"]]);
  assert.deepEqual(said(".total==5 .total=>5 .total>="), [[".total==5", ".total=5"], [".total=>5", ".total>=5"], [".total>=", ".total>=600"]]);
});
test("what is no mistake has no hint", () => {
  const text = 'http://x/y 10:30 {"a":1} "a":1 "x>1" .com refused key:ann header.trace:7f* .total>100 -paid value.total>=1 .a.b!=x';
  assert.deepEqual(hints(text), []);
});
