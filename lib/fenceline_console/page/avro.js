// @ts-check
// Avro's binary encoding, by a schema that is given. Pure. The answer is JSON text, so that a long keeps its digits.
//
// A value of a union is shown without its branch's name, bytes and fixed as hex, a logical type as what it is stored as.
// Data that the schema does not fit ends in an error, and so does what would never end: a list of a billion nulls.

const DEPTH_MAX = 500;
const VALUES_MAX = 200_000;
const PRIMITIVES = new Set(["null", "boolean", "int", "long", "float", "double", "bytes", "string"]);
const TEXT = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export class AvroError extends Error {}

/** @typedef {{names: Map<string, any>, root: any}} Schema */

/** What a value of a schema registry begins with: byte 0 and a 4-byte id; null where it is not so. @param {Uint8Array|null} octets */
export const registryId = (octets) => (octets && octets.length >= 5 && octets[0] === 0 ? new DataView(octets.buffer, octets.byteOffset).getUint32(1) : null);

/** @param {string} text a schema as JSON @returns {Schema} */
export function parsed(text) {
  let root;
  try { root = JSON.parse(text); } catch { throw new AvroError("the schema is not JSON"); }
  const schema = { names: new Map(), root };
  known(root, "", schema.names, 0);
  return schema;
}

/** @param {string} name @param {string} space */
const full = (name, space) => (name.includes(".") || !space || PRIMITIVES.has(name) ? name : `${space}.${name}`);

/** Learn the names of a schema, and refuse what is none. @param {any} type @param {string} space @param {Map<string, any>} names @param {number} depth */
function known(type, space, names, depth) {
  if (depth > DEPTH_MAX) throw new AvroError("the schema is nested too deep");
  if (typeof type === "string") {
    if (!PRIMITIVES.has(type) && !names.has(full(type, space)) && !names.has(type)) throw new AvroError(`the schema names ${type}, and does not say what it is`);
    return;
  }
  if (Array.isArray(type)) { for (const branch of type) known(branch, space, names, depth + 1); return; }
  if (type === null || typeof type !== "object") throw new AvroError("a type is a name, a list or an object");
  if (["record", "error", "enum", "fixed"].includes(type.type)) {
    if (typeof type.name !== "string") throw new AvroError(`a type ${type.type} has no name`);
    const own = type.name.includes(".") ? type.name.slice(0, type.name.lastIndexOf(".")) : type.namespace ?? space;
    Object.defineProperty(type, "space", { value: own });
    names.set(full(type.name, own), type);
    if (type.type === "enum" && !Array.isArray(type.symbols)) throw new AvroError(`the enum ${type.name} has no symbols`);
    if (type.type === "fixed" && !(Number.isInteger(type.size) && type.size >= 0)) throw new AvroError(`the fixed ${type.name} has no size`);
    if (type.type === "enum" || type.type === "fixed") return;
    if (!Array.isArray(type.fields)) throw new AvroError(`the record ${type.name} has no fields`);
    for (const field of type.fields) known(field?.type, own, names, depth + 1);
  } else if (type.type === "array") known(type.items, space, names, depth + 1);
  else if (type.type === "map") known(type.values, space, names, depth + 1);
  else known(type.type, space, names, depth + 1);
}

/** @param {Schema} schema @param {Uint8Array} octets @returns {string} JSON text */
export function decode(schema, octets) {
  const reader = new Reader(octets, schema.names);
  reader.value(schema.root, "", 0);
  if (reader.at < octets.length) throw new AvroError(`${octets.length - reader.at} bytes are left over: this is not the schema that it was written by`);
  return reader.out.join("");
}

class Reader {
  at = 0;
  left = VALUES_MAX;
  /** @type {string[]} */ out = [];

  /** @param {Uint8Array} octets @param {Map<string, any>} names */
  constructor(octets, names) { this.octets = octets; this.view = new DataView(octets.buffer, octets.byteOffset, octets.length); this.names = names; }

  /** @param {number} size */
  bytes(size) {
    if (size < 0 || size > this.octets.length - this.at) throw new AvroError(`${size} bytes are asked for at byte ${this.at}, and ${this.octets.length - this.at} are there`);
    this.at += size;
    return this.octets.subarray(this.at - size, this.at);
  }

  /** A zigzag number of at most 64 bits. */
  long() {
    let found = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const [b] = this.bytes(1);
      found |= BigInt(b & 127) << shift;
      if (b < 128) break;
      if (shift >= 63n) throw new AvroError(`the number before byte ${this.at} is too long`);
    }
    found = BigInt.asUintN(64, found);
    return (found >> 1n) ^ -(found & 1n);
  }

  size() { return Number(this.long()); }
  string() { try { return TEXT.decode(this.bytes(this.size())); } catch (error) { if (error instanceof AvroError) throw error; throw new AvroError(`the text before byte ${this.at} is not UTF-8`); } }

  /** @param {any} type @param {string} space @param {number} depth */
  value(type, space, depth) {
    if (depth > DEPTH_MAX) throw new AvroError(`values are nested more than ${DEPTH_MAX} deep`);
    if ((this.left -= 1) < 0) throw new AvroError(`more than ${VALUES_MAX} values`);
    if (typeof type === "string") {
      if (PRIMITIVES.has(type)) { this.out.push(this.primitive(type)); return; }
      type = this.names.get(full(type, space)) ?? this.names.get(type);
    }
    if (Array.isArray(type)) {
      const branch = this.size();
      if (!(branch >= 0 && branch < type.length)) throw new AvroError(`branch ${branch} of a union of ${type.length}, before byte ${this.at}`);
      this.value(type[branch], space, depth + 1);
    } else if (type.type === "record" || type.type === "error") {
      this.out.push("{");
      type.fields.forEach((/** @type {any} */ field, /** @type {number} */ i) => {
        this.out.push(i ? "," : "", JSON.stringify(String(field.name)), ":");
        this.value(field.type, type.space, depth + 1);
      });
      this.out.push("}");
    } else if (type.type === "enum") {
      const i = this.size();
      if (!(i >= 0 && i < type.symbols.length)) throw new AvroError(`symbol ${i} of an enum of ${type.symbols.length}, before byte ${this.at}`);
      this.out.push(JSON.stringify(String(type.symbols[i])));
    } else if (type.type === "fixed") this.out.push(hexText(this.bytes(type.size)));
    else if (type.type === "array") this.blocks("[", "]", () => this.value(type.items, space, depth + 1));
    else if (type.type === "map") this.blocks("{", "}", () => { this.out.push(JSON.stringify(this.string()), ":"); this.value(type.values, space, depth + 1); });
    else this.value(type.type, space, depth + 1);
  }

  /** Items in blocks; a negative count is followed by the block's size. @param {string} open @param {string} close @param {() => void} item */
  blocks(open, close, item) {
    this.out.push(open);
    for (let isFirst = true, count = this.size(); count !== 0; count = this.size()) {
      if (count < 0) { count = -count; this.long(); }
      for (; count > 0; count -= 1) { if (!isFirst) this.out.push(","); isFirst = false; item(); }
    }
    this.out.push(close);
  }

  /** @param {string} type */
  primitive(type) {
    switch (type) {
      case "null": return "null";
      case "boolean": {
        const [b] = this.bytes(1);
        if (b > 1) throw new AvroError(`byte ${this.at - 1} is no boolean`);
        return b ? "true" : "false";
      }
      case "int": case "long": return String(this.long());
      case "float": this.bytes(4); return number(this.view.getFloat32(this.at - 4, true));
      case "double": this.bytes(8); return number(this.view.getFloat64(this.at - 8, true));
      case "bytes": return hexText(this.bytes(this.size()));
      default: return JSON.stringify(this.string());
    }
  }
}

/** @param {number} n */
const number = (n) => (Number.isFinite(n) ? (Object.is(n, -0) ? "-0" : String(n)) : `"${n}"`);
/** @param {Uint8Array} octets */
const hexText = (octets) => `"0x${Array.from(octets, (b) => b.toString(16).padStart(2, "0")).join("")}"`;
