import test from "node:test";
import assert from "node:assert/strict";
import { Part, bytes, hex, listed, period, short, toBase64, visible } from "../../../lib/fenceline_console/page/format.js";

test("counts and sizes are short", () => {
  assert.deepEqual([short(578805), short(12472), short(9999), bytes(10623752), bytes(999), period(604800000), period(-1)], ["579k", "12.5k", "9,999", "10 MiB", "999 B", "7 d", "for ever"]);
});
test("a count of a list is exact to five digits", () => {
  assert.deepEqual([listed(0), listed(12005), listed(99999), listed(100000)], ["0", "12,005", "99,999", "100k"]);
});
test("bytes that are no text are hex, eight a line", () => {
  const part = new Part("iVBORw0KGgoA", "base64");
  assert.equal(part.text, null);
  assert.equal(hex(part.bytes), "000000  89 50 4e 47  0d 0a 1a 0a  ·PNG····\n000008  00                        ·");
  assert.equal(toBase64(part.bytes), "iVBORw0KGgoA");
});
test("text keeps its byte order mark, and its size is that of its bytes", () => {
  const part = new Part("77u/w6k=", "base64");
  assert.equal(part.text, "\ufeffé");
  assert.deepEqual([part.size, new Part("é", "utf8").size, new Part("ab", "utf8", 500).size], [5, 2, 500]);
});
test("a value that is cut within a character is text, and a whole one with that end is not", () => {
  assert.equal(new Part("YcM=", "base64", 9).text, "a");
  assert.equal(new Part("YcM=", "base64").text, null);
});
test("null, empty and the text null are three things", () => {
  assert.deepEqual([new Part(null, "utf8").isNull, new Part("", "utf8").isNull, new Part("null", "utf8").isNull], [true, false, false]);
});
test("nothing that hides, joins or turns text passes unseen", () => {
  assert.equal(visible("\u202eevil\u202c\u0000\n\u007f\u0085"), "⟨202E⟩evil⟨202C⟩␀␊␡⟨0085⟩");
  assert.equal(visible("a\u00ad\u200d\u2028\u3164\u{e0041}\ud800\ufe0f"), "a⟨00AD⟩⟨200D⟩⟨2028⟩⟨3164⟩⟨E0041⟩⟨D800⟩⟨FE0F⟩");
  assert.equal(visible("a\nb\tc\rd", true), "a\nb\tc␍d");
  assert.equal(visible("Zoë 日本 😀"), "Zoë 日本 😀");
});
