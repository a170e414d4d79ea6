// @ts-check
// What is shown as a file, a JSON text a line. Values that the list cuts are read whole first.
import { toBase64 } from "../format.js";
import { whole } from "./detail.js";

const BYTES_MAX = 268435456; // a browser holds the file in memory
/** @typedef {import("./log.js").Shown} Shown @typedef {import("../format.js").Part} Part */

/** One record as a line: its parts as text, or all of them as base64, as the API has them. @param {string} topic @param {Shown} r */
export function line(topic, r) {
  const parts = [r.key, r.value, ...r.headers.map((h) => h[1])], isText = parts.every((p) => p.isNull || p.text !== null);
  const shown = (/** @type {Part} */ p) => (p.isNull ? null : isText ? p.text : toBase64(/** @type {Uint8Array} */ (p.bytes)));
  return JSON.stringify({
    topic, partition: r.partition, offset: r.offset, timestamp: r.timestamp, key: shown(r.key), value: shown(r.value), headers: r.headers.map(([n, v]) => [n, shown(v)]),
    topic_epoch: r.epoch, ...(r.origin ? { origin: r.origin } : {}), ...(r.batch?.outcome ? { outcome: r.batch.outcome } : {}), encoding: isText ? "utf8" : "base64",
  });
}

/** @param {string} topic @param {Shown[]} rows */
export async function download(topic, rows) {
  if (rows.reduce((n, r) => n + r.size, 0) > BYTES_MAX) throw new Error("these records hold more than 256 MiB: filter them, or use fenceline consume");
  const lines = await Promise.all(rows.map(async (r) => `${line(topic, r.value.isCut ? { ...r, value: (await whole(topic, r.id))?.value ?? r.value } : r)}\n`));
  const url = URL.createObjectURL(new Blob(lines, { type: "application/x-ndjson" }));
  const link = Object.assign(document.createElement("a"), { href: url, download: `${topic}.jsonl` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
