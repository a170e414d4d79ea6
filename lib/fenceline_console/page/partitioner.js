// @ts-check
// Kafka's placement of a key: (murmur2(key) & 0x7fffffff) mod partitions, over the key's bytes. Pure.

/** @param {Uint8Array} octets */
export function murmur2(octets) {
  const view = new DataView(octets.buffer, octets.byteOffset, octets.length), whole = octets.length & ~3;
  let h = 0x9747b28c ^ octets.length;
  for (let at = 0; at < whole; at += 4) {
    const k = Math.imul(view.getInt32(at, true), 0x5bd1e995);
    h = Math.imul(h, 0x5bd1e995) ^ Math.imul(k ^ (k >>> 24), 0x5bd1e995);
  }
  for (let i = octets.length - whole - 1; i >= 0; i -= 1) {
    h ^= octets[whole + i] << (8 * i);
    if (i === 0) h = Math.imul(h, 0x5bd1e995);
  }
  h = Math.imul(h ^ (h >>> 13), 0x5bd1e995);
  return h ^ (h >>> 15);
}

/** @param {Uint8Array} key @param {number} partitions */
export const partitionOf = (key, partitions) => (murmur2(key) & 0x7fffffff) % partitions;
