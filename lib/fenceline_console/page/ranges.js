// @ts-check
// Partitions as people write them: 0, 3-7. Pure: no document, no fetch, no clock.

/** The numbers that a text means, in order and each once; null where it means none. @param {string} text */
export function numbers(text) {
  /** @type {Set<number>} */
  const found = new Set();
  for (const part of text.split(",")) {
    const match = /^\s*(\d{1,6})\s*(?:[-–]\s*(\d{1,6})\s*)?$/.exec(part);
    if (!match) return null;
    const first = Number(match[1]), last = Number(match[2] ?? match[1]);
    if (last < first || last - first > 100000) return null;
    for (let n = first; n <= last; n += 1) found.add(n);
  }
  return [...found].sort((a, b) => a - b);
}

/** Numbers in order as a text: 0–3, 7. @param {number[]} all */
export function ranges(all) {
  /** @type {[number, number][]} */
  const found = [];
  for (const n of all) {
    const last = found.at(-1);
    if (last && last[1] === n - 1) last[1] = n; else found.push([n, n]);
  }
  return found.map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`)).join(", ");
}
