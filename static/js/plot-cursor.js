// The cursor of a plot by keys and by touch, as a slider: uPlot itself knows the mouse alone. Plots that share a key follow.
const STRIDE = 10; // points, with Shift or by Page Up and Page Down

// Returns the index of the point that a key leads to from `index`, -1 for none, or null if the key means nothing here.
export function indexAfter(key, index, last, isLarge = false) {
  const step = isLarge ? STRIDE : 1;
  const from = index < 0 ? last : index;
  const targets = {
    ArrowLeft: from - step,
    ArrowRight: from + step,
    PageDown: from - STRIDE,
    PageUp: from + STRIDE,
    Home: 0,
    End: last,
  };
  if (key === "Escape") return -1;
  return key in targets ? Math.min(last, Math.max(0, targets[key])) : null;
}

// Moves the cursor of the plot in `area`; `plotOf` returns the plot that is drawn there now.
export function bindCursor(area, plotOf) {
  const move = (left) => plotOf()?.setCursor({ left, top: left < 0 ? -1 : 0 }, true, true);
  area.tabIndex = 0;
  area.addEventListener("keydown", (event) => {
    const plot = plotOf();
    if (!plot || event.ctrlKey || event.metaKey || event.altKey) return;
    const index = indexAfter(event.key, plot.cursor.left < 0 ? -1 : (plot.cursor.idx ?? -1), plot.data[0].length - 1, event.shiftKey);
    if (index === null) return;
    event.preventDefault();
    move(index < 0 ? -1 : plot.valToPos(plot.data[0][index], "x"));
  });
  area.addEventListener("blur", () => move(-1));
  const follow = (event) => {
    if (event.pointerType === "mouse" || !plotOf()) return;
    const box = plotOf().over.getBoundingClientRect();
    move(Math.min(box.width, Math.max(0, event.clientX - box.left)));
  };
  area.addEventListener("pointerdown", follow);
  area.addEventListener("pointermove", follow);
}
