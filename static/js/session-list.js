// The page of sessions. The server sends what has changed: rows, counts, the resources, and what running sessions use.
// The list is fetched again only where that is not enough, each browser after a while of its own.
import { gettext } from "#i18n";
import { stepsFor } from "#list-rows";
import { usesOf } from "#session-use";

const SOON_MS = 1500; // at most, before the list is fetched again
const LATER_MS = 10_000; // the same, where it may well come out the same
const live = document.getElementById("live");
const use = new Map(); // by session, as the server sent it last
const ARRAYS_MS = 2500; // after a task's session has moved: its array counts it within two seconds
let fetching = null;
let fetchingArrays = null;
let underWay = 0; // requests for the list
let meanwhile = []; // what was told since the first of them was sent; their answers may not know of it

const list = () => document.getElementById("sessions");
const rowsShown = () => [...live.querySelectorAll("#session-rows > [data-session]")];

function fetchWithin(limit) {
  fetching ??= setTimeout(() => {
    fetching = null;
    document.dispatchEvent(new CustomEvent("live:changed"));
  }, Math.random() * limit);
}

function fetchArrays() {
  fetchingArrays ??= setTimeout(() => {
    fetchingArrays = null;
    window.htmx.trigger("#live-arrays", "arrays:changed");
  }, ARRAYS_MS + Math.random() * SOON_MS);
}

function showUse(place) {
  const { cpu, memory, gpu, gpuMemory } = place.dataset;
  const held = { cpu: Number(cpu), memory: Number(memory), gpu: Number(gpu), gpuMemory: Number(gpuMemory) };
  const found = usesOf(use.get(place.dataset.use) ?? [null, null, null, null], held);
  for (const meter of place.querySelectorAll("[data-of]")) {
    const one = found[meter.dataset.of];
    meter.hidden = !one;
    meter.parentElement.classList.toggle("is-high", one?.percent >= 90);
    const text = meter.parentElement.querySelector("[data-held]");
    const { held: limit } = text.dataset;
    text.textContent = one ? gettext("%(used)s of %(limit)s", { used: one.figure, limit }) : limit;
    if (one) meter.value = one.percent;
  }
}

function takeUse(known) {
  for (const [id, figures] of Object.entries(known)) use.set(id, figures);
  for (const place of live.querySelectorAll("[data-use]")) showUse(place);
}

// Other modules write times, count ticks and open the launcher after a swap of htmx; this is one, of some rows.
function announceSwap() {
  for (const name of ["htmx:afterSwap", "htmx:afterSettle"]) window.htmx.trigger(live, name, { target: live });
}

function elementOf(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content.firstElementChild;
}

// What the server had no time to look for stays as it is shown.
const callbacks = { beforeNodeMorphed: (shown, fresh) => !(fresh.hasAttribute?.("data-kept") && shown.id === fresh.id) };

function apply({ action, id }, html) {
  const row = document.getElementById(`session-${id}`);
  if (action === "fetch") fetchWithin(SOON_MS);
  else if (action === "fetch later") fetchWithin(LATER_MS);
  else if (action === "remove") row.remove();
  else if (action === "morph") {
    window.Idiomorph.morph(row, html, { morphStyle: "outerHTML", callbacks });
    window.htmx.process(document.getElementById(`session-${id}`));
  } else {
    const fresh = elementOf(html);
    fresh.classList.add("is-new");
    document.getElementById("session-rows")?.prepend(fresh);
    window.htmx.process(fresh);
  }
}

function pageShown() {
  const { tab, status, size, newestFirst } = list().dataset;
  const rows = rowsShown();
  return {
    shown: rows.map((row) => row.dataset.session),
    tab,
    status,
    size: Number(size),
    isNewestFirst: newestFirst !== undefined,
    newest: Math.max(0, ...rows.map((row) => Number(row.dataset.created))),
  };
}

function takeRows(rows, counts) {
  for (const [tab, count] of Object.entries(counts)) {
    const place = live.querySelector(`[data-count="${tab}"]`);
    if (place) place.textContent = count;
  }
  const htmlOf = new Map(rows.map((row) => [row.id, row.html]));
  for (const step of stepsFor(rows, pageShown())) apply(step, htmlOf.get(step.id));
  announceSwap();
}

function drawBlock(id, [mine, others, text, description]) {
  const block = document.getElementById(`gpu-${id}`);
  if (!block) {
    fetchWithin(SOON_MS);
    return;
  }
  block.querySelector("[data-part=mine]").setAttribute("width", `${mine}%`);
  const part = block.querySelector("[data-part=others]");
  part.setAttribute("x", `${mine}%`);
  part.setAttribute("width", `${others}%`);
  if (!description) return;
  block.title = description;
  block.querySelector("[role=img]").setAttribute("aria-label", description);
  block.querySelector(".gpu-text").textContent = text;
}

function drawBar(name, parts) {
  for (const [index, where] of ["mine", "here", "all"].entries()) {
    const [used, most, text] = parts[index];
    const bar = document.getElementById(`bar-${name}-${where}`);
    if (bar && most !== null) {
      bar.max = most || 1;
      bar.value = used;
    }
    const place = document.querySelector(`#bars [data-bar="${name}-${where}"]`);
    if (place) place.textContent = text;
  }
}

function takeResources({ group, free, mine, bars, blocks }) {
  if (Number(list().dataset.group) !== group) return;
  for (const [name, parts] of Object.entries(bars)) drawBar(name, parts);
  for (const [id, block] of Object.entries(blocks)) drawBlock(id, block);
  const heads = { free, mine };
  for (const [name, text] of Object.entries(heads)) {
    const place = live.querySelector(`[data-gpus=${name}]`);
    if (place) place.textContent = text;
  }
}

function take({ rows, counts, arrays, use: used, resources }) {
  if (arrays) fetchArrays();
  if (rows) takeRows(rows, counts);
  if (used) takeUse(used);
  if (resources) takeResources(resources);
}

function watch(version) {
  const { tab, group } = list().dataset;
  const ids = rowsShown().map((row) => row.dataset.session);
  const detail = { watch: { tab, group: Number(group) || null, ids, version, language: document.documentElement.lang } };
  document.dispatchEvent(new CustomEvent("live:send", { detail }));
}

function closeMenus(except) {
  for (const menu of live.querySelectorAll("details.menu[open]")) {
    if (menu !== except) menu.open = false;
  }
}

document.addEventListener("live:open", (event) => {
  event.preventDefault(); // the answer to the version says whether to fetch
  watch(list().dataset.version);
});
document.addEventListener("live:message", (event) => {
  const message = event.detail;
  if ("session" in message) {
    event.preventDefault();
    fetchWithin(SOON_MS);
  }
  if (underWay) meanwhile.push(message);
  take(message);
});
document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.detail.target === live) underWay += 1;
});
document.addEventListener("htmx:afterRequest", (event) => {
  if (event.detail.target === live && !--underWay) meanwhile = [];
});
document.addEventListener("click", (event) => closeMenus(event.target.closest("details.menu")));
document.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && live.querySelector("details.menu[open]");
  if (!menu) return;
  menu.open = false;
  menu.querySelector("summary").focus();
});
live.addEventListener("click", (event) => {
  if (!event.target.closest("[data-tick-none]")) return;
  for (const box of live.querySelectorAll("input[name=ids]:checked")) box.checked = false;
  live.dispatchEvent(new Event("change"));
});
document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target !== live) return;
  const isFetched = Boolean(event.detail.xhr); // else some rows were announced
  takeUse(isFetched ? JSON.parse(document.getElementById("session-use").textContent) : {});
  if (isFetched) meanwhile.forEach(take);
  watch();
});
takeUse(JSON.parse(document.getElementById("session-use").textContent));
