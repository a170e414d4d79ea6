import test from "node:test";
import assert from "node:assert/strict";
import { decode, parsed, registryId } from "../../../lib/fenceline_console/page/avro.js";

const octets = (hex) => Uint8Array.from(hex.match(/../g) ?? [], (b) => parseInt(b, 16));
const read = (schema, hex) => decode(parsed(JSON.stringify(schema)), octets(hex));

test("the specification's own examples", () => {
  for (const [hex, n] of [["00", "0"], ["01", "-1"], ["02", "1"], ["03", "-2"], ["7f", "-64"], ["8001", "64"]]) assert.equal(read("long", hex), n);
  assert.equal(read("string", "06666f6f"), '"foo"');
  const record = { type: "record", name: "test", fields: [{ name: "a", type: "long" }, { name: "b", type: "string" }] };
  assert.equal(read(record, "3606666f6f"), '{"a":27,"b":"foo"}');
  assert.equal(read({ type: "array", items: "long" }, "04063600"), "[3,27]");
  assert.equal(read({ type: "array", items: "long" }, "0304063600"), "[3,27]"); // a block with its size
  assert.equal(read(["null", "string"], "020261"), '"a"');
});

// Written by fastavro 1.12: every type, a record in itself, names with and without their namespace.
const ORDER = {"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"long"},{"name":"paid","type":"boolean"},{"name":"n","type":"int"},{"name":"f","type":"float"},{"name":"d","type":"double"},{"name":"raw","type":"bytes"},{"name":"who","type":"string"},{"name":"no","type":"null"},{"name":"state","type":{"type":"enum","name":"State","symbols":["NEW","PAID"]}},{"name":"tags","type":{"type":"array","items":"string"}},{"name":"by","type":{"type":"map","values":"long"}},{"name":"note","type":["null","string"]},{"name":"sum","type":{"type":"fixed","name":"Sum","size":4}},{"name":"before","type":["null","Order"]},{"name":"last","type":"shop.State"},{"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}}]};
const BYTES = "82808080808080200180010000c03f9a9999999999b93f048950085a6fc3ab0204026102620002125f5f70726f746f5f5fffffffffffffffffff0100020278ff000001020100ffffffff0f000000bf9c7500883ce4377e000000000000000102030000000280a0abfef962";

test("what another encoder wrote is read, each digit of it", () => {
  assert.equal(read(ORDER, BYTES), '{"id":9007199254740993,"paid":true,"n":64,"f":1.5,"d":0.1,"raw":"0x8950","who":"Zoë","no":null,"state":"PAID","tags":["a","b"],"by":{"__proto__":-9223372036854775808},"note":"x","sum":"0xff000001",'
    + '"before":{"id":-1,"paid":false,"n":-2147483648,"f":-0.5,"d":1e+300,"raw":"0x","who":"","no":null,"state":"NEW","tags":[],"by":{},"note":null,"sum":"0x00010203","before":null,"last":"NEW","at":0},"last":"PAID","at":1700000000000}');
});
test("data that the schema does not fit ends in a sentence", () => {
  const list = { type: "record", name: "L", fields: [{ name: "next", type: ["null", "L"] }] };
  for (const [schema, hex, said] of [
    ["string", "0661", /asked for/], ["long", "", /asked for/], ["long", "0000", /left over/], [["null"], "02", /union/], ["boolean", "02", /boolean/], ["string", "01", /asked for/],
    ["long", "ffffffffffffffffffffff01", /too long/], [{ type: "array", items: "null" }, "8080808010", /values/], [list, "02".repeat(600), /deep/], ["string", "02ff", /UTF-8/],
  ]) assert.throws(() => read(schema, hex), { message: said }, hex);
  for (const [text, said] of [["{", /not JSON/], ['"nothing"', /does not say/], ['{"type":"record","name":"a"}', /fields/], ["3", /a type is/], ['{"type":"enum","name":"e"}', /symbols/]]) assert.throws(() => parsed(text), { message: said }, text);
});
test("a registry's value begins with byte 0 and an id", () => {
  assert.equal(registryId(octets("000000001102")), 17);
  assert.deepEqual([registryId(octets("0100000011")), registryId(octets("00000011")), registryId(null)], [null, null, null]);
});
