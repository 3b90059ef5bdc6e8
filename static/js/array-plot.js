// The plot of an array's tasks: arrows lead from dot to dot, the mouse to the nearest; a line below says what it is.
import { indexAfter } from "#plot-cursor";

const live = document.getElementById("live");
let shown = -1;

const area = () => live.querySelector("[data-dots]");
const dots = () => [...live.querySelectorAll("[data-dot]")];

function show(index) {
  shown = index;
  if (!area()) return;
  for (const [place, dot] of dots().entries()) dot.classList.toggle("is-shown", place === index);
  const text = dots()[index]?.dataset.dot ?? "";
  live.querySelector("[data-dot-text]").textContent = text;
  if (!text) return;
  area().setAttribute("aria-valuenow", index + 1);
  area().setAttribute("aria-valuetext", text);
}

// Returns the place of the dot that is nearest to a point of the window.
function nearest(x, y) {
  const distances = dots().map((dot) => {
    const { left, top } = dot.getBoundingClientRect();
    return Math.hypot(left - x, top - y);
  });
  return distances.indexOf(Math.min(...distances));
}

live.addEventListener("keydown", (event) => {
  if (!event.target.matches("[data-dots]") || event.ctrlKey || event.metaKey || event.altKey) return;
  const index = indexAfter(event.key, shown, dots().length - 1, event.shiftKey);
  if (index === null) return;
  event.preventDefault();
  show(index);
});
for (const name of ["pointermove", "pointerdown"]) {
  live.addEventListener(name, (event) => {
    if (event.target.closest("[data-dots]")) show(nearest(event.clientX, event.clientY));
  });
}
document.addEventListener("htmx:afterSwap", () => show(shown)); // what the server sends knows of none
