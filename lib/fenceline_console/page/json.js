// @ts-check
// JSON by its source text: as pieces to show, and a member's own text. Pure. No number is computed, so none changes, and
// a name that occurs twice is shown twice. Depth costs no stack.

/** @typedef {{kind: "" | "k" | "s" | "n" | "w", text: string}} Piece k a name, s a text, n a number, w true, false or null */

const SPACE = /[ \t\n\r]*/y;
const TOKEN = /(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)|(true|false|null)|([[\]{},:])/y;
const PIECE = 16; // characters for which a piece counts at least, because each is an element of the page
const INDENT_MAX = 60; // deeper than this, a line would be all space

/** Where the text ends that begins at a quote. A regular expression would need a stack as long as the text. @param {string} text @param {number} at */
function textEnd(text, at) {
  for (let end = text.indexOf('"', at + 1); end >= 0; end = text.indexOf('"', end + 1)) {
    let escapes = 0;
    while (text[end - 1 - escapes] === "\\") escapes += 1;
    if (escapes % 2 === 0) return end + 1;
  }
  throw new SyntaxError(`a text that begins at ${at} has no end`);
}

/** Tokens of JSON text, one at a time. @param {string} text @returns {Generator<{kind: Piece["kind"], text: string}>} */
function* tokens(text) {
  for (let at = 0; ; ) {
    SPACE.lastIndex = at;
    SPACE.test(text);
    at = SPACE.lastIndex;
    if (at >= text.length) return;
    if (text[at] === '"') {
      const end = textEnd(text, at);
      yield { kind: "s", text: text.slice(at, end) };
      at = end;
    } else {
      TOKEN.lastIndex = at;
      const m = TOKEN.exec(text);
      if (!m) throw new SyntaxError(`no JSON at ${at}`);
      yield { kind: m[1] ? "n" : m[2] ? "w" : "", text: m[0] };
      at = TOKEN.lastIndex;
    }
  }
}

/** Whether a text is one JSON value by RFC 8259, however deep. @param {string} text */
export function isJson(text) {
  try { JSON.parse(text); return true; }
  catch (error) { if (!(error instanceof RangeError)) return false; }
  try { for (const _ of tokens(text)); return true; } catch { return false; }
}

/**
 * JSON text with line ends and indents, as pieces; cut after about so many characters.
 * @param {string} text that isJson holds for @param {number} [most]
 * @returns {{pieces: Piece[], isCut: boolean}}
 */
export function pretty(text, most = Infinity) {
  /** @type {Piece[]} */
  const pieces = [];
  const closers = [];
  let size = 0, isName = false, isFirst = true, plain = "";
  const line = () => {
    const indent = `\n${"  ".repeat(Math.min(closers.length, INDENT_MAX))}`;
    size += indent.length;
    return indent;
  };
  const flush = () => { if (plain) pieces.push({ kind: "", text: plain }); plain = ""; };
  for (const token of tokens(text)) {
    const { kind, text: word } = token;
    if (size + word.length > most) {
      flush();
      if (kind) pieces.push({ kind: kind === "s" && isName ? "k" : kind, text: word.slice(0, most - size) });
      return { pieces, isCut: true };
    }
    if (word === "}" || word === "]") {
      closers.pop();
      plain += isFirst ? word : line() + word;
      isFirst = false;
    } else {
      if (isFirst && closers.length) plain += line();
      isFirst = word === "{" || word === "[";
      if (isFirst) { closers.push(word); plain += word; }
      else if (word === ",") plain += word + line();
      else if (word === ":") plain += ": ";
      else { flush(); pieces.push({ kind: kind === "s" && isName ? "k" : kind, text: word }); }
    }
    isName = closers.at(-1) === "{" && (word === "{" || word === ",");
    size += kind ? Math.max(PIECE, word.length) : 1;
  }
  flush();
  return { pieces, isCut: false };
}

const LOOSE = /("(?:[^"\\]|\\.)*")(\s*:)?/g;
const SIMPLE = /^"[A-Za-z_][\w-]*"$/;

/** One line of JSON text that may be cut: its names apart, simple ones without quotes. @param {string} text @returns {Piece[]} */
export function named(text) {
  /** @type {Piece[]} */
  const pieces = [];
  let done = 0;
  for (const m of text.matchAll(LOOSE)) {
    if (!m[2]) continue;
    pieces.push({ kind: "", text: text.slice(done, m.index) }, { kind: "k", text: SIMPLE.test(m[1]) ? m[1].slice(1, -1) : m[1] });
    done = m.index + m[1].length;
  }
  pieces.push({ kind: "", text: text.slice(done) });
  return pieces;
}

/** The source text of a member, by its path; undefined where there is none. @param {string} text @param {string[]} path @returns {string|undefined} */
export function sourceOf(text, path) {
  let found;
  /** @type {{isObject: boolean, at: string|number}[]} */
  const open = [];
  let isName = false, name = "";
  for (const { kind, text: word } of tokens(text)) {
    const top = open.at(-1);
    if (word === "," && top) { if (top.isObject) isName = true; else top.at = Number(top.at) + 1; continue; }
    if (word === ":" ) { isName = false; if (top) top.at = name; continue; }
    if (kind === "s" && isName) { name = JSON.parse(word); continue; }
    if (word === "}" || word === "]") { open.pop(); continue; }
    if (kind && open.length === path.length && open.every((o, i) => String(o.at) === path[i])) found = word;
    if (word === "{" || word === "[") { open.push({ isObject: word === "{", at: word === "{" ? "" : 0 }); isName = word === "{"; }
  }
  return found;
}
