// @ts-check
// Small parts of the pages on writers, subscriptions and groups.
import { html, useSignal, useRepeated, Pager } from "../ui.js";
import * as api from "../api.js";
import { grouped, clock, visible } from "../format.js";

/** How people call a session: by its own label, else its producer's name, else the start of its id. @param {{client_name?: string|null, producer_name?: string|null, session_id?: string|null}} one */
export const called = (one) => visible(one.client_name || one.producer_name || one.session_id?.slice(0, 8) || "unknown");

/** A time to the second. @param {number} ms @param {number} now */
export const second = (ms, now) => clock(ms, now).replace(/\.\d+$/, "");

/** What is left of a lease. @param {number} until @param {number} now */
export const left = (until, now) => (until <= now ? "is over" : `${Math.ceil((until - now) / 1000)} s left`);

/**
 * The foot of a list whose pages begin at a number.
 * @param {{start: number, size: number, count: number, hasMore?: boolean, what: string, to: string, query?: Record<string, any>, param?: string}} props
 */
export const NumberedPager = ({ start, size, count, hasMore = false, what, to, query = {}, param = "from" }) => (start === 0 && !hasMore ? null
  : html`<${Pager} label=${`Pages of ${what}`} to=${to} said=${count ? `${what} ${grouped(start)} to ${grouped(start + count - 1)}` : `no ${what} here`}
    before=${start > 0 ? { ...query, [param]: start > size ? start - size : undefined } : null} after=${hasMore ? { ...query, [param]: start + size } : null} />`);

const STEP = 1000;

/**
 * The entries of a list of any length: looked through page by page up to a number of them, and anew after a pause. The
 * first time what has come is shown at once; later the list changes only as a whole.
 * @param {string} to @param {string} member @param {Record<string, any>} query @param {number} ms
 * @param {(entries: any[]) => void} [looked] is told of each list that is whole
 */
export function useWalk(to, member, query, ms, looked) {
  const list = useSignal(/** @type {any[]|null} */ (null));
  const hasMore = useSignal(false), error = useSignal(/** @type {any} */ (null)), most = useSignal(STEP), turn = useSignal(0);
  useRepeated(async (s) => {
    const found = [];
    for (let more = {}; ;) {
      const page = await api.get(to, { ...query, ...more }, s);
      found.push(...page[member]);
      const isLast = !page.has_more || found.length >= most.value;
      if (isLast || (list.value?.length ?? 0) < found.length) { list.value = [...found]; hasMore.value = page.has_more; }
      if (isLast) break;
      more = { start_after: page.go_on_after ?? page[member].at(-1)?.name };
    }
    looked?.(found);
  }, ms, [to, JSON.stringify(query), most.value, turn.value], (e) => (error.value = e));
  return { list: list.value, hasMore: hasMore.value, error: error.value, again: () => (turn.value += 1), more: () => (most.value += STEP) };
}

/** What a walk has not looked at. @param {{walk: {list: any[]|null, hasMore: boolean, more: () => void}, what: string}} props */
export const Rest = ({ walk, what }) => (walk.hasMore && walk.list ? html`<p class="rest muted">The first ${grouped(walk.list.length)} ${what} were looked at; there are more.
  <button type="button" class="button" onClick=${walk.more}>Look at ${grouped(STEP)} more</button></p>` : null);
