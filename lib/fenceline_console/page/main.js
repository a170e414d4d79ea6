// @ts-check
// The frame: navigation, the place that is shown, and which page an address means.
import { SILENT_MS, html, render, address, go, Link, useSignal, useEffect, useRepeated, Nothing, Segments, Trouble } from "./ui.js";
import * as api from "./api.js";
import { visible } from "./format.js";

/** Each page is loaded when it is first shown. @type {Record<string, () => Promise<any>>} */
const PAGES = {
  topics: async () => (await import("./pages/topics.js")).Topics,
  subscriptions: async () => (await import("./pages/subscriptions.js")).Subscriptions,
  writers: async () => (await import("./pages/writers.js")).AllWriters,
  transactions: async () => (await import("./pages/transactions.js")).Transactions,
  regions: async () => (await import("./pages/regions.js")).Regions,
  failover: async () => (await import("./pages/failover.js")).Failover,
  spark: async () => (await import("./pages/spark.js")).Spark,
  health: async () => (await import("./pages/health.js")).Health,
  "topic/": async () => (await import("./pages/messages.js")).Messages,
  "topic/partitions": async () => (await import("./pages/partitions.js")).Partitions,
  "topic/writers": async () => (await import("./pages/writers.js")).Writers,
  "topic/subscriptions": async () => (await import("./pages/subscriptions.js")).TopicSubscriptions,
  "topic/settings": async () => (await import("./pages/settings.js")).Settings,
};
const PLACES = [
  ["topics", "Topics"], ["subscriptions", "Subscriptions"], ["writers", "Who may write"], ["transactions", "Transactions"], ["regions", "Regions"], ["spark", "Spark"],
  ["health", "Health and cost"],
];
/** Places that are reached from another one, whose name is marked in the navigation. @type {Record<string, [string, string]>} */
const WITHIN = { failover: ["regions", "Failover"] };
const TABS = [["", "Messages"], ["partitions", "Partitions"], ["writers", "Who may write"], ["subscriptions", "Subscriptions"], ["settings", "Settings"]];

const Mark = () => html`<svg width="20" height="20" viewBox="0 0 20 20" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round">
  <path d="M4 3v14M10 3v14M16 3v14M1.5 8h17M1.5 13h8.5"/></svg>`;

function theme(/** @type {string|null} */ wanted) {
  if (wanted) document.documentElement.dataset.theme = wanted; else delete document.documentElement.dataset.theme;
  try { if (wanted) localStorage.setItem("theme", wanted); else localStorage.removeItem("theme"); } catch { /* none kept */ }
}

/** A page, once its module is here. @param {{of: string, [given: string]: any}} props */
function Page({ of, ...given }) {
  const made = useSignal(/** @type {{of: string, page: any}|null} */ (null));
  const failed = useSignal(false);
  useEffect(() => { failed.value = false; PAGES[of]().then((page) => (made.value = { of, page })).catch(() => (failed.value = true)); }, [of]);
  // A browser may keep that a module failed: the whole page is asked for again, a moment after the server has answered.
  useRepeated(async (s) => { if (failed.value && (await api.own("about.json", s))) setTimeout(() => s.aborted || location.reload(), SILENT_MS); }, 0, [failed.value], () => {});
  if (failed.value) return html`<${Trouble} error=${new api.Problem(0, null)} again=${() => location.reload()} />`;
  return made.value?.of === of ? html`<${made.value.page} ...${given} />` : null;
}

/** @param {string} step of the address */
const decoded = (step) => { try { return decodeURIComponent(step); } catch { return step; } };

function Side(/** @type {{place: string, health: any}} */ { place, health }) {
  const chosen = useSignal(document.documentElement.dataset.theme ?? "");
  const regions = api.about.value?.regions ?? [];
  return html`<aside class="side"><a class="skip" href="#main">Skip to content</a>
    <${Link} to="topics" class="brand"><${Mark} />fenceline<//>
    <nav aria-label="Console"><ul>${PLACES.map(([to, label]) => html`<li><${Link} to=${to} aria-current=${(WITHIN[place]?.[0] ?? place) === to ? "page" : undefined}>${label}<//></li>`)}</ul></nav>
    <div class="place"><dl><dt>Region</dt><dd>${regions.length > 1
      ? html`<select aria-label="Region" value=${api.region.value} onChange=${(/** @type {any} */ e) => go(address.value.pathname.slice("/console/".length), { at: e.target.value })}>
        ${regions.map((r) => html`<option value=${r.name}>${r.name}</option>`)}</select>`
      : health?.region ?? "…"}</dd>
      <dt>Version</dt><dd>${health?.version ?? "…"}</dd>
      <dt>Service</dt><dd><span class=${`dot ${health?.status === "ok" ? "live" : ""}`}></span> ${health?.status === "ok" ? "answers" : health ? "silent" : "…"}</dd>
      <dt>Access</dt><dd>${api.canWrite() ? html`<b class="can-write">can change</b>` : "read-only"}</dd></dl>
      <${Segments} label="Colours" options=${[["", "Auto"], ["light", "Light"], ["dark", "Dark"]]} chosen=${chosen.value}
        choose=${(/** @type {string} */ k) => { chosen.value = k; theme(k || null); }} /></div></aside>`;
}

function App() {
  const steps = address.value.pathname.replace(/^\/console\/?/, "").split("/").filter(Boolean).map(decoded);
  const [place = "topics", name, tab = ""] = steps;
  const health = useSignal(/** @type {any} */ (null));
  const regions = api.about.value?.regions ?? [];
  const at = address.value.searchParams.get("at") ?? regions[0]?.name ?? null;
  if (api.region.value !== at) api.region.value = at;
  useRepeated(async (s) => { health.value = await api.health(s, undefined); }, 5000, [at], (error) => { if (error) health.value = { ...health.value, status: "unreachable" }; });
  useEffect(() => document.querySelectorAll(".side nav a[aria-current], .tabs a[aria-current]").forEach((a) => a.scrollIntoView({ block: "nearest", inline: "nearest" })), [place, name, tab]);
  const isTopic = place === "topics" && name !== undefined;
  const page = isTopic ? `topic/${tab}` : place;
  const label = PLACES.find((p) => p[0] === place)?.[1] ?? (Object.hasOwn(WITHIN, place) ? WITHIN[place][1] : undefined);
  const what = isTopic ? [...steps.slice(3), name, TABS.find((t) => t[0] === tab && tab)?.[1]] : label ? [...steps.slice(1), label] : ["Not found"];
  document.title = [...what, "fenceline"].filter(Boolean).map((step) => visible(String(step))).join(" · ");
  const known = Object.hasOwn(PAGES, page);
  const path = isTopic ? `topics/${api.part(name)}` : "";
  return html`<${Side} place=${place} health=${health.value} />
    <main id="main" tabindex="-1">
      ${api.canWrite() && regions[0]?.path ? html`<p class="warning" role="note">This console can change ${at}.</p>` : null}
      ${isTopic && html`<div class="head"><h1 title=${visible(name)}><${Link} to="topics" class="crumb">Topics /<//> ${visible(name)}</h1></div>
      <nav class="tabs" aria-label="Topic">${TABS.map(([to, text]) => html`<${Link} to=${to ? `${path}/${to}` : path} aria-current=${tab === to ? "page" : undefined}>${text}<//>`)}</nav>`}
      ${known ? html`<${Page} of=${page} key=${`${page} ${name ?? ""} ${at}`} name=${name} steps=${steps} />`
        : html`<h1>Not found</h1><${Nothing} title="The console has no such page"><${Link} to="topics" class="button">Show the topics<//><//>`}</main>`;
}

try { theme(localStorage.getItem("theme")); } catch { /* none kept */ }
const root = /** @type {HTMLElement} */ (document.getElementById("app"));

/** Show the pages, once the server has said what this console is; while it is silent, ask again. */
async function start() {
  try { api.about.value = await api.own("about.json"); }
  catch { root.textContent = "The console's server does not answer. This page goes on by itself when it is back."; setTimeout(start, SILENT_MS); return; }
  root.replaceChildren();
  render(html`<${App} />`, root);
}
start();

addEventListener("keydown", (e) => {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(/** @type {any} */ (e.target).tagName);
  if (e.key === "/" && !typing && !document.querySelector("dialog[open]")) { e.preventDefault(); document.getElementById("search")?.focus(); }
});
