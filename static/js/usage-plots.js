// The plots of a session's use, of what a deployment serves, or of what a resource group lends: one cursor for all of them, over a time of choice, asked
// for again every ten seconds while it goes on and the page is seen.
import { gettext } from "#i18n";
import { bindCursor } from "#plot-cursor";
import { FIGURES } from "#figures-series";
import { PLOTS as USES, columns, timeMark, top } from "#usage-series";

const EVERY_MS = 10_000;
const HEIGHT = 144;
const PLOTS = { ...USES, ...FIGURES };
const COLOURS = ["is-first", "is-second", "is-limit", "is-grid"];
let card = null;
let latest = null;
let shownWindow = "";
let drawn = []; // { name, place, plot }
let asked = 0;
const hasEnded = () => document.querySelector(".session-head[data-final]") !== null;
let isFinal = hasEnded();

// Returns the card's colours as the canvas takes them: light-dark() is resolved for an element's colour only.
function colours() {
  return COLOURS.map((name) => {
    const probe = document.createElement("span");
    probe.className = `usage-probe ${name}`;
    card.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  });
}

// Returns a colour such as rgb(1, 2, 3) as the fill below a line.
function faint(colour) {
  return colour.replace(")", ", .14)").replace("rgb(", "rgba(");
}

function limitLine(limit, colour) {
  return (plot) => {
    if (!limit) return;
    const y = Math.round(plot.valToPos(limit, "y", true)) + 0.5;
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = colour;
    ctx.setLineDash([5, 4]);
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    ctx.restore();
  };
}

function say(place, name, index) {
  const point = latest.points.at(index) ?? latest.points.at(-1);
  const when = index === -1 ? "" : `${timeMark(Date.parse(point.at) / 1000, lengthShown())}: `;
  const text = `${when}${PLOTS[name].text(point, latest)}`;
  place.querySelector("[data-now]").textContent = text;
  const last = latest.points.length - 1;
  const values = { valuemin: 0, valuemax: last, valuenow: index < 0 ? last : index, valuetext: text };
  for (const [key, value] of Object.entries(values)) place.querySelector("[data-area]").setAttribute(`aria-${key}`, value);
}

function lengthShown() {
  const [first, last] = [latest.points.at(0), latest.points.at(-1)].map((point) => Date.parse(point.at) / 1000);
  return last - first;
}

// Returns the index of the point at this moment; the plot's data may have gaps that the points have not.
function pointAt(seconds) {
  return latest.points.findIndex((point) => Date.parse(point.at) / 1000 === seconds);
}

function options(name, place, width) {
  const { readers, limit, least, mark, steps, hasDots = false } = PLOTS[name];
  const [first, second, muted, grid] = colours();
  const most = limit(latest);
  const axis = { stroke: muted, font: "12px system-ui, sans-serif", grid: { stroke: grid, width: 1 }, ticks: { show: false } };
  return {
    width,
    height: HEIGHT,
    padding: [null, 42, null, null], // half of the last mark's text
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, sync: { key: "usage" }, points: { size: 6 } },
    scales: {
      y: { range: (_, low, high) => [0, top(most, high, least)] },
    },
    axes: [
      { ...axis, size: 30, space: 90, values: (plot, marks) => marks.map((each) => timeMark(each, plot.scales.x.max - plot.scales.x.min)) },
      { ...axis, size: 68, space: 36, incrs: steps, values: (_, marks) => marks.map(mark) },
    ],
    series: [{}, ...readers.map((_, number) => ({ stroke: number ? second : first, width: 2, spanGaps: false, points: { show: hasDots || latest.points.length < 3, size: 4 }, fill: number ? undefined : faint(first) }))],
    hooks: {
      draw: [limitLine(most, muted)],
      setCursor: [(plot) => say(place, name, plot.cursor.idx === null || plot.cursor.left < 0 ? -1 : pointAt(plot.data[0][plot.cursor.idx]))],
    },
  };
}

// Writes all points as a table, the last first, for those who cannot see the plots.
function fillTable() {
  const body = card.querySelector("[data-usage-table]");
  if (!latest || !body?.closest("details").open) return;
  const rows = latest.points.toReversed().map((point) => {
    const row = document.createElement("tr");
    const head = document.createElement("th");
    head.scope = "row";
    head.textContent = timeMark(Date.parse(point.at) / 1000, lengthShown());
    row.append(head, ...drawn.map(({ name }) => Object.assign(document.createElement("td"), { textContent: PLOTS[name].text(point, latest) })));
    return row;
  });
  body.replaceChildren(...rows);
}

function draw(anew) {
  const isEmpty = latest.points.length === 0;
  card.querySelector("[data-usage-plots]").hidden = isEmpty;
  card.querySelector("[data-usage-note]").hidden = !isEmpty;
  if (isEmpty) return;
  for (const each of drawn) {
    const data = columns(latest, PLOTS[each.name].readers);
    if (anew) {
      each.plot?.destroy();
      each.plot = null;
    }
    const area = each.place.querySelector("[data-area]");
    if (each.plot) each.plot.setData(data);
    else each.plot = new window.uPlot(options(each.name, each.place, area.clientWidth), data, area);
    if (each.plot.cursor.idx === null || each.plot.cursor.left < 0) say(each.place, each.name, -1);
  }
  fillTable();
}

// What moves the cursor: the moment and its figures are the value of a slider.
function makeSlider({ place }, plotOf) {
  const area = place.querySelector("[data-area]");
  area.setAttribute("role", "slider");
  area.setAttribute("aria-label", gettext("%(name)s over time", { name: place.querySelector(".usage-name").textContent }));
  bindCursor(area, plotOf);
}

async function ask() {
  if (!card || document.hidden) return;
  const order = ++asked;
  const url = card.querySelector("[data-usage-member]")?.value ?? card.dataset.url;
  const asks = card.dataset.window;
  const response = await fetch(`${url}?${card.dataset.parameter ?? "window"}=${asks}`, { headers: { Accept: "application/json" } }).catch(() => null);
  if (!response?.ok || order !== asked) return; // offline, or signed out meanwhile: asked for again soon
  const before = latest;
  latest = await response.json();
  const isOther = asks !== shownWindow;
  shownWindow = asks;
  draw(isOther || before?.gpu_memory_share !== latest.gpu_memory_share);
}

function choose(event) {
  const button = event.target.closest("[data-window-choice]");
  if (!button) return;
  card.dataset.window = button.dataset.windowChoice;
  for (const each of card.querySelectorAll("[data-window-choice]")) each.setAttribute("aria-pressed", String(each === button));
  ask();
}

// The card comes with the live update in which the session has started.
function attach() {
  const found = document.getElementById("usage");
  if (!found || found === card) return;
  card = found;
  drawn = [...card.querySelectorAll("[data-plot]")].map((place) => ({ place, name: place.dataset.plot, plot: null }));
  for (const each of drawn) makeSlider(each, () => each.plot);
  card.addEventListener("click", choose);
  card.addEventListener("change", ask); // another member of the cluster
  card.querySelector("details")?.addEventListener("toggle", fillTable);
  new ResizeObserver(() => {
    for (const { plot, place } of drawn) plot?.setSize({ width: place.querySelector("[data-area]").clientWidth, height: HEIGHT });
  }).observe(card);
  ask();
}

// The last figures come with the end, and then the whole life is what there is.
function follow() {
  const wasRunning = card && !isFinal;
  attach();
  isFinal = hasEnded();
  if (wasRunning && isFinal) card.querySelector("[data-window-choice=life]")?.click();
}

document.addEventListener("htmx:afterSwap", follow);
new MutationObserver(() => latest && draw(true)).observe(document.documentElement, { attributeFilter: ["data-bs-theme"] });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => latest && draw(true));
document.addEventListener("visibilitychange", ask);
setInterval(() => hasEnded() || ask(), EVERY_MS);
attach();
