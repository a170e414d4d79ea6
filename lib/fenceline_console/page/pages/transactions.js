// @ts-check
// Transactions: those under way and prepared, what each holds up, and what is open although no id can end it.
import { html, address, isNarrow, useSignal, useRepeated, Link, Trouble, Nothing, Bones, Columns, Pager, Question } from "../ui.js";
import * as api from "../api.js";
import { ago, clock, grouped, iso, period, visible } from "../format.js";
import { holds, isTimedOut, joined, within } from "../held.js";
import { fence, useLooks } from "./looks.js";
import { Hanging, Wait } from "./hanging.js";

const SHOWN = 50;
const WIDTHS = [170, 70, 220, 90, 60, 20, 20];
const NAMED = 3;
/** @type {[string, string, string?][]} */
const COLUMNS = [["Transactional id", "24%"], ["State", "104px", "wide"], ["Holds up", ""], ["Since", "106px", "wide"],
  ["Time left", "84px", "number wide"], ["Partitions", "86px", "number wide"], ["Groups", "70px", "number wide"]];
/** @type {Record<string, string>} */ const STATES = { Ongoing: "under way", PrepareCommit: "committing", PrepareAbort: "aborting" };

export function Transactions() {
  const looks = useLooks();
  const at = address.value.searchParams;
  const fenced = useSignal(/** @type {any} */ (null));
  const tick = useSignal(0);
  useRepeated(async () => { tick.value += 1; }, 1000, [], () => {});
  const now = api.serviceNow();
  const rows = looks.list === null ? null : joined(looks.list.listed, looks.opened);
  const hanging = looks.opened.filter((/** @type {any} */ o) => o.is_hanging);
  const from = /^\d{1,9}$/.test(at.get("from") ?? "") ? Number(at.get("from")) : 0;
  const shown = (rows ?? []).slice(from, from + SHOWN);
  const open = at.get("open");
  return html`<div class="head"><h1>Transactions</h1><span class="faint number">${rows ? grouped(rows.length) : ""}</span></div>
    <${Trouble} error=${looks.error} again=${looks.again} />
    ${rows && html`<${Glance} rows=${rows} hanging=${hanging} scan=${looks.scan} />`}
    ${(rows || !looks.error) && html`<section class="sheet" aria-label="Under way"><table class="transactions">
      <${Columns} of=${[...COLUMNS, api.canWrite() && ["Change", "84px", "wide"]]} />
      <tbody>${rows === null ? html`<${Bones} widths=${WIDTHS} />` : shown.map((r) => html`<tr key=${r.id} class=${r.id === open ? "chosen" : ""}>
          <td title=${visible(r.id)}><${Link} to="transactions" query=${{ from: from || undefined, open: r.id === open ? undefined : r.id }} stays
            class="open mono" aria-expanded=${r.id === open ? "true" : "false"}>${visible(r.id)}<//></td>
          <td class="wide"><span class=${`tag ${r.state === null || r.state === "Ongoing" ? "" : "good"}`}>
            ${isTimedOut(r, now) ? "timed out" : STATES[r.state ?? "Ongoing"] ?? visible(r.state ?? "")}</span></td>
          <td class="wrapped"><${Holds} row=${r} /></td>
          <td class="wide muted" title=${r.since === null ? "" : iso(r.since)}>${r.since === null ? "…" : ago(r.since, now)}</td>
          <td class="number wide">${left(r, now)}</td>
          <td class="number wide">${grouped(r.partitions.length)}</td><td class="number wide">${grouped(r.groups.length)}</td>
          ${api.canWrite() && html`<td class="wide"><button class="button quiet" aria-label=${`Fence ${visible(r.id)}`} onClick=${() => (fenced.value = r)}>Fence</button></td>`}</tr>
        ${r.id === open && html`<tr key=${`${r.id} open`} class="opened"><td colspan=${isNarrow() ? 2 : COLUMNS.length + (api.canWrite() ? 1 : 0)}>
          <${Whole} row=${r} now=${now} fence=${() => (fenced.value = r)} /></td></tr>`}`)}</tbody></table>
      ${rows?.length === 0 && html`<${Nothing} title="No transaction is under way">
        A transaction makes records of several partitions, and offsets of groups, visible together or not at all. Run a command in one:
        <pre>fenceline txn run --in orders --out totals --group totals -- ./totals.py</pre><//>`}
      ${rows !== null && rows.length > 0 && html`<${Pager} label="Pages of transactions" to="transactions" said=${said(rows, from, shown, looks.list)}
        before=${from > 0 ? { from: Math.max(0, from - SHOWN) || undefined } : null} after=${from + SHOWN < rows.length ? { from: from + SHOWN } : null} />`}</section>`}
    <${Hanging} hanging=${hanging} scan=${looks.scan} error=${looks.scanError} look=${looks.look} halt=${looks.halt} again=${looks.again} now=${now} isKnown=${rows !== null} />
    ${fenced.value && html`<${Fence} row=${fenced.value} close=${() => (fenced.value = null)} again=${looks.again} />`}`;
}

/** @param {any[]} rows @param {number} from @param {any[]} shown @param {any} list */
function said(rows, from, shown, list) {
  const count = rows.length > SHOWN ? `${grouped(from + 1)} to ${grouped(from + shown.length)} of ${grouped(rows.length)}` : `${rows.length} under way`;
  const lacks = `${list.isCut ? " There are others, beyond the first 5,000." : ""}${list.isOfAll ? "" : " Time-outs and groups are known only of ids of your own."}`;
  return `${count}, those that hold up readers first.${lacks}`;
}

/** Which transaction holds up readers, in a sentence. @param {{rows: import("../held.js").Underway[], hanging: import("../held.js").Opened[], scan: any}} props */
function Glance({ rows, hanging, scan }) {
  const stuck = hanging.filter(holds);
  const holding = rows.filter((r) => r.holds.length);
  const held = holding.flatMap((r) => r.holds).concat(stuck);
  if (!held.length) return html`<p class="glance" role="status">No reader of committed records waits ${scan.isRunning ? "in what was looked at so far" : "for a transaction"}.</p>`;
  const most = holding[0];
  const where = held.length === 1 ? `Readers of ${held[0].topic}/${held[0].partition} wait at ${grouped(held[0].wait)}` : `Readers wait in ${grouped(held.length)} partitions`;
  return html`<p class="glance" role="status"><strong>${where}</strong>${most
    ? html` for <b class="mono">${visible(most.id)}</b>${holding.length > 1 ? ` and ${holding.length - 1} other${holding.length > 2 ? "s" : ""}` : ""}${stuck.length ? ", and for what hangs" : ""}`
    : html` for what hangs: no id can end it`}.</p>`;
}

/** What one transaction holds up. @param {{row: import("../held.js").Underway}} props */
function Holds({ row }) {
  const [shown, rest] = [row.holds.slice(0, 1), row.holds.length - 1];
  if (row.holds.length) return html`${shown.map((o) => html`<${Wait} of=${o} />`)}${rest > 0 ? html`<span class="muted">, and ${grouped(rest)} other${rest > 1 ? "s" : ""}</span>` : null}`;
  if (row.behind.length) return html`<span class="faint">nothing yet: it is behind another in ${row.behind[0].topic}/${row.behind[0].partition}</span>`;
  return html`<span class="faint">nothing</span>`;
}

/** @param {import("../held.js").Underway} r @param {number} now */
function left(r, now) {
  if (r.ends === null) return html`<span class="faint">${r.state === null ? "…" : r.state === "Ongoing" ? "…" : "decided"}</span>`;
  const s = Math.ceil((r.ends - now) / 1000);
  return s <= 0 ? html`<span class="damage">ends soon</span>` : s < 120 ? `${s} s` : s < 7200 ? `${Math.floor(s / 60)} min` : `${Math.floor(s / 3600)} h`;
}

/** One transaction whole. @param {{row: import("../held.js").Underway, now: number, fence: () => void}} props */
function Whole({ row, now, fence: ask }) {
  const places = [...row.holds.map((o) => html`<li><${Wait} of=${o} /> <span class="muted">· its records lie within ${within(o)}</span></li>`),
    ...row.behind.map((o) => html`<li class="muted">${o.topic}/${o.partition} from ${grouped(o.start_offset)}, behind an earlier transaction</li>`)];
  const named = new Set([...row.holds, ...row.behind].map((o) => `${o.topic}/${o.partition}`));
  const others = row.partitions.map((p) => `${p.topic}/${p.partition}`).filter((p) => !named.has(p));
  return html`<div class="whole"><dl><dt>Producer</dt><dd class="number">${row.producer_id} <span class="faint">epoch ${row.producer_epoch}</span></dd>
      <dt>Began</dt><dd>${row.since === null ? "…" : clock(row.since, now)}</dd>
      <dt>Time-out</dt><dd>${row.timeout === null ? "…" : period(row.timeout)}${row.ends === null ? "" : html` <span class="faint">at ${clock(row.ends, now).replace(/\.\d+$/, "")}</span>`}</dd>
      <dt>Time left</dt><dd>${isTimedOut(row, now) ? "timed out, " : null}${left(row, now)}</dd>
      <dt>Groups</dt><dd>${row.groups.length ? cut(row.groups.map((g) => visible(g))) : html`<span class="faint">none</span>`}</dd></dl>
    <ul aria-label="Partitions">${places.slice(0, SHOWN)}${places.length > SHOWN && html`<li class="faint">and ${grouped(places.length - SHOWN)} others</li>`}
      ${others.length > 0 && html`<li class="muted">${cut(others)}: nothing is held up there</li>`}</ul>
    ${api.canWrite() && html`<button class="button" onClick=${ask}>Fence its producer…</button>`}</div>`;
}

/** @param {string[]} names */
const cut = (names) => `${names.slice(0, SHOWN).join(", ")}${names.length > SHOWN ? ` and ${grouped(names.length - SHOWN)} others` : ""}`;

/** @param {{row: import("../held.js").Underway, close: () => void, again: () => void}} props */
function Fence({ row, close, again }) {
  const names = row.partitions.map((p) => `${p.topic}/${p.partition}`);
  const where = `${names.slice(0, NAMED).join(", ")}${names.length > NAMED ? ` and ${grouped(names.length - NAMED)} other partitions` : ""}`;
  const isDecided = row.state !== null && row.state !== "Ongoing";
  return html`<${Question} title="Fence a transactional id?" action="Fence it" name=${row.id} isBad close=${close} run=${async () => { await fence(row.id); again(); }}>
    <p>${isDecided ? "Its transaction is finished as it was decided." : `Its transaction is aborted${where ? `: readers never see what it wrote to ${where}` : ""}.`}
      ${row.groups.length ? " The offsets that it sent to groups are forgotten." : ""}</p>
    <p class="warning">Its producer is fenced: whatever it sends from then on is refused, until it asks for a new epoch.</p><//>`;
}
