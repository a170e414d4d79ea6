// @ts-check
// The state of a topic's messages: a search that goes on until enough is found, and what comes while the page is live.
import { SILENT_MS, useSignal, useEffect, useRef, useRepeated } from "../ui.js";
import * as api from "../api.js";
import { Search, latest } from "../scan.js";
import { filter } from "../filter.js";
import { chosen, endOf, lanes, offsetsOf, reader } from "./log.js";

export const SHOWN_MAX = 1000;
export const PAGE = 100;
const BURST = 500; // records of a partition and a look; what lies below is skipped, and said to be

/** @typedef {import("./log.js").Shown} Shown @typedef {import("./log.js").Offsets} Offsets @typedef {import("./log.js").Wanted} Wanted */
/** @typedef {{id: string, skipped: {partition: number, from: number, end: number}}} Gap what was skipped, as a row */
/** @typedef {{parts: Offsets[]|null, rows: (Shown|Gap)[], looked: number, bytes: number, isDone: boolean, isBusy: boolean, isStopped: boolean, error: any, lanes: number, of: number}} State */

const EMPTY = /** @type {State} */ ({ parts: null, rows: [], looked: 0, bytes: 0, isDone: false, isBusy: true, isStopped: false, error: null, lanes: 0, of: 0 });
const isSkipped = (/** @type {Shown|Gap} */ row) => "skipped" in row;

/** @param {string} name @param {Wanted} wanted */
export function useSearch(name, wanted) {
  const state = useSignal(EMPTY);
  const turn = useSignal(0);
  const run = useRef(/** @type {{more: () => void, stop: () => void}} */ ({ more() {}, stop() {} }));
  const positions = useRef(/** @type {Map<number, number>} */ (new Map()));
  const set = (/** @type {Partial<State>} */ change) => (state.value = { ...state.value, ...change });
  useEffect(() => {
    const gone = new AbortController();
    let isStopped = false, timer = 0;
    /** @type {Search<Shown>|null} */
    let search = null;
    state.value = { ...EMPTY, parts: state.value.parts };
    const more = async () => {
      clearTimeout(timer);
      isStopped = false;
      set({ isBusy: true, isStopped });
      try {
        search ??= await begin();
        await search.more(PAGE, { isStopped: () => isStopped || gone.signal.aborted, found });
      } catch (error) {
        if (gone.signal.aborted) return;
        set({ error, isBusy: false });
        if (error instanceof api.Problem && error.status === 0) timer = setTimeout(more, SILENT_MS); // it goes on by itself
        return;
      }
      if (!gone.signal.aborted) set({ isBusy: false, isStopped, error: null, isDone: search.isDone });
    };
    const begin = async () => {
      const parts = await api.offsets(name, gone.signal);
      set({ parts });
      positions.current = new Map(parts.map((p) => [p.partition, endOf(p, wanted)]));
      const made = await lanes(name, parts, wanted, gone.signal);
      set({ lanes: made.lanes.length, of: made.of });
      return new Search(made.lanes, wanted.from === "newest", filter(wanted.text));
    };
    const found = (/** @type {Shown[]} */ records) => {
      if (!gone.signal.aborted) set({ rows: [...state.value.rows, ...records].slice(0, SHOWN_MAX), looked: search?.looked ?? 0, bytes: search?.bytes ?? 0 });
    };
    run.current = { more, stop: () => { isStopped = true; } };
    more();
    return () => { gone.abort(); clearTimeout(timer); };
  }, [name, turn.value, ...Object.values(wanted)]);
  return { state, positions, more: () => run.current.more(), stop: () => run.current.stop(), again: () => (turn.value += 1) };
}

/**
 * Follow the ends: one look asks for all offsets, and only partitions that have grown are read. What comes while the page
 * is scrolled down waits above.
 * @param {string} name @param {Wanted} wanted @param {boolean} isLive @param {ReturnType<typeof useSearch>} search
 */
export function useLive(name, wanted, isLive, { state, positions }) {
  const above = useSignal(/** @type {{rows: (Shown|Gap)[], count: number}} */ ({ rows: [], count: 0 }));
  const trouble = useSignal(/** @type {any} */ (null));
  useEffect(() => { above.value = { rows: [], count: 0 }; }, [name, isLive, ...Object.values(wanted)]);
  const show = () => {
    if (!above.value.count) return;
    state.value = { ...state.value, rows: [...above.value.rows, ...state.value.rows].slice(0, SHOWN_MAX) };
    above.value = { rows: [], count: 0 };
  };
  useEffect(() => {
    const scrolled = () => { if (scrollY < 40) show(); };
    addEventListener("scroll", scrolled, { passive: true });
    return () => removeEventListener("scroll", scrolled);
  }, []);
  const look = async (/** @type {AbortSignal} */ signal) => {
    if (!isLive || state.value.parts === null || !positions.current.size) return;
    const one = wanted.only !== null && /^\d+$/.test(wanted.only) ? await offsetsOf(name, Number(wanted.only), signal) : null;
    const parts = one ? state.value.parts.map((/** @type {Offsets} */ p) => (p.partition === one.partition ? one : p)) : await api.offsets(name, signal);
    if (signal.aborted) return;
    state.value = { ...state.value, parts };
    const grown = chosen(parts, wanted.only).map((p) => ({ partition: p.partition, from: Math.max(p.log_start_offset, positions.current.get(p.partition) ?? 0), end: endOf(p, wanted) }))
      .filter((p) => p.end > p.from);
    if (!grown.length) return;
    const { records, skipped } = await latest(grown, reader(name, wanted, signal), BURST);
    if (signal.aborted) return;
    for (const p of grown) positions.current.set(p.partition, p.end);
    const matched = records.filter(filter(wanted.text));
    for (const r of matched) r.isFresh = true;
    const gaps = skipped.map((s) => ({ id: `skipped ${s.partition} ${s.from}`, skipped: s }));
    const rows = [...matched, ...gaps];
    if (!rows.length) return;
    above.value = { rows: [...rows, ...above.value.rows].slice(0, SHOWN_MAX), count: above.value.count + matched.length };
    if (scrollY < 120) show();
  };
  useRepeated(look, isLive ? api.about.value?.refresh_ms ?? 1000 : 0, [name, isLive, state.value.parts === null, ...Object.values(wanted)], (e) => (trouble.value = e));
  return { above, trouble, show: () => { show(); scrollTo(0, 0); } };
}

/** @param {(Shown|Gap)[]} rows @returns {Shown[]} */
export const onlyRecords = (rows) => /** @type {Shown[]} */ (rows.filter((r) => !isSkipped(r)));
