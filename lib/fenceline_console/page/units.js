// @ts-check
// Settings as text, and text as settings: periods and sizes by their units, exact to the last digit. Pure: no document, no fetch, no clock.
import { bytes, grouped, period } from "./format.js";

const MOST = 9223372036854775807n;
const PERIODS = /** @type {Record<string, bigint>} */ ({ ms: 1n, s: 1000n, min: 60000n, h: 3600000n, d: 86400000n });
const SIZES = /** @type {Record<string, bigint>} */ ({ b: 1n, kib: 1024n, mib: 1048576n, gib: 1073741824n, tib: 1099511627776n });

/** What a setting counts, by its name. @param {string} name @returns {"ms"|"bytes"|null} */
export const unitOf = (name) => (name.endsWith(".ms") ? "ms" : name.endsWith(".bytes") ? "bytes" : null);

/** @param {number|bigint} n */
const exactly = (n) => (typeof n === "bigint" ? n : BigInt(n));

/** A setting's value as it is read; one that is not understood as it is. @param {string} name @param {any} value */
export function setting(name, value) {
  if (typeof value !== "bigint" && !Number.isInteger(value)) return typeof value === "string" ? value : JSON.stringify(value, (_, v) => (typeof v === "bigint" ? Number(v) : v));
  const unit = unitOf(name);
  if (unit === null) return String(value);
  if (value < 0) return unit === "ms" ? "for ever" : "no limit";
  if (exactly(value) >= MOST) return "no limit";
  if (typeof value === "bigint") return `${grouped(/** @type {any} */ (value))} ${unit}`;
  return unit === "ms" ? (value === 0 ? "0 ms" : period(value)) : bytes(value);
}

/** A setting as it is typed into a field: with the unit that divides it. @param {string} name @param {any} value */
export function editable(name, value) {
  const unit = unitOf(name);
  if (unit === null || (typeof value !== "bigint" && !Number.isInteger(value)) || value <= 0) return String(value);
  const units = Object.entries(unit === "ms" ? PERIODS : SIZES).reverse();
  const [word, size] = units.find(([, s]) => exactly(value) % s === 0n) ?? ["", 1n];
  return size === 1n ? String(value) : `${exactly(value) / size} ${{ kib: "KiB", mib: "MiB", gib: "GiB", tib: "TiB" }[word] ?? word}`;
}

/** The integer that a text means, in the unit that the setting counts; null where it means none. @param {string} name @param {string} text @returns {bigint|null} */
export function typed(name, text) {
  const unit = unitOf(name);
  const [, digits, word] = /^\s*(-?\d[\d,]*)\s*([A-Za-z]*)\s*$/.exec(text) ?? [];
  if (digits === undefined) return null;
  const units = unit === "ms" ? PERIODS : unit === "bytes" ? SIZES : {};
  const n = BigInt(digits.replaceAll(",", ""));
  if (!word) return n;
  return Object.hasOwn(units, word.toLowerCase()) && n >= 0n ? n * units[word.toLowerCase()] : null;
}
