// Draws what the session uses of its GPUs: memory in GiB and percent of the devices' time, asked for again every ten
// seconds while the page is seen.
import { GIB, clock, read, textOf } from "#gpu-text";

const EVERY_MS = 10_000;
const card = document.getElementById("gpu-plots");
const plots = [...card.querySelectorAll("[data-series]")].map((place) => ({ place, series: place.dataset.series, plot: null }));
const HEIGHT = 140;
let latest = null;

function colour(name) {
  const probe = document.createElement("span"); // light-dark() is resolved for an element's colour only
  probe.style.color = `var(${name})`;
  card.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function options(series, top, width) {
  const muted = colour("--muted");
  const axis = { stroke: muted, font: "12px system-ui, sans-serif", grid: { stroke: colour("--track"), width: 1 }, ticks: { show: false } };
  const accent = colour(series === "memory" ? "--accent" : "--good");
  const value = (_, number) => (number === null ? "–" : series === "memory" ? `${number.toFixed(2)} GiB` : `${Math.round(number)} %`);
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false } },
    scales: { y: { range: (_, low, high) => [0, top || Math.max(1, high)] } },
    axes: [{ ...axis, size: 32, space: 70, values: (_, marks) => marks.map(clock) }, { ...axis, size: 44, values: (_, marks) => marks.map((mark) => String(mark)) }],
    series: [{}, { stroke: accent, width: 2, fill: accent.replace("rgb(", "rgba(").replace(")", ", .12)"), value, spanGaps: false }],
    hooks: {
      setCursor: [
        (plot) => {
          const at = plot.cursor.idx;
          const place = plot.root.closest("[data-series]").querySelector("[data-now]");
          place.textContent = textOf(series, latest.points[at ?? latest.points.length - 1], latest.gpu_memory_share);
        },
      ],
    },
  };
}

function draw(anew) {
  card.hidden = !latest || latest.points.length === 0;
  if (card.hidden) return;
  const moments = latest.points.map((point) => Date.parse(point.at) / 1000);
  for (const each of plots) {
    const data = [moments, latest.points.map(read[each.series])];
    const area = each.place.querySelector("[data-plot]");
    if (anew && each.plot) {
      each.plot.destroy();
      each.plot = null;
    }
    const top = each.series === "utilisation" ? 100 : (latest.gpu_memory_share ?? 0) / GIB;
    if (each.plot) each.plot.setData(data);
    else each.plot = new window.uPlot(options(each.series, top, area.clientWidth), data, area);
    each.place.querySelector("[data-now]").textContent = textOf(each.series, latest.points.at(-1), latest.gpu_memory_share);
  }
}

async function ask() {
  if (document.hidden) return;
  const response = await fetch(card.dataset.url, { headers: { Accept: "application/json" } }).catch(() => null);
  if (!response?.ok) return; // offline, or signed out meanwhile: asked for again soon
  const before = latest;
  latest = await response.json();
  draw(before?.gpu_memory_share !== latest.gpu_memory_share);
}

addEventListener("resize", () => {
  for (const { plot, place } of plots) plot?.setSize({ width: place.querySelector("[data-plot]").clientWidth, height: HEIGHT });
});
new MutationObserver(() => draw(true)).observe(document.documentElement, { attributeFilter: ["data-bs-theme"] });
document.addEventListener("visibilitychange", ask);
setInterval(ask, EVERY_MS);
ask();
