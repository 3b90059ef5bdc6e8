// Draws the two replays of the simulation page over each other.
const curves = JSON.parse(document.getElementById("curves").textContent);
const gettext = (text) => globalThis.translations?.texts[text]?.[0] ?? text; // #i18n is a module
const style = getComputedStyle(document.documentElement);
const colour = (name, otherwise) => style.getPropertyValue(name).trim() || otherwise;
const axis = { stroke: colour("--body-fg", "#333"), grid: { stroke: colour("--hairline-color", "#ddd"), width: 1 } };

function draw(id, title, unit, [before, after]) {
  const place = document.getElementById(id);
  const value = (_, number) => (number === null ? "" : `${number}${unit}`);
  const options = {
    title,
    width: place.clientWidth,
    height: 260,
    scales: { y: { range: (_, low, high) => [0, Math.max(1, high)] } },
    axes: [axis, { ...axis, size: 60 }],
    series: [
      {},
      { label: gettext("as it was"), stroke: "#8a94a6", width: 2, value },
      { label: gettext("changed"), stroke: "#4f46e5", width: 2, value },
    ],
  };
  const plot = new uPlot(options, [curves.moments, before, after], place);
  addEventListener("resize", () => plot.setSize({ width: place.clientWidth, height: 260 }));
}

draw("plot-waiting", gettext("Sessions that wait"), "", curves.waiting);
draw("plot-in-use", gettext("GPU in use"), " %", curves.inUse);
