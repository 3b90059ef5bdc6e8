// The page of sessions: what running sessions use at the moment, and the menus of the list's head.
import { usesOf } from "#session-use";

const live = document.getElementById("live");

function heldBy(place) {
  const { cpu, memory, gpu, gpuMemory } = place.dataset;
  return { cpu: Number(cpu), memory: Number(memory), gpu: Number(gpu), gpuMemory: Number(gpuMemory) };
}

function showUse(place, use) {
  const found = usesOf(use, heldBy(place));
  for (const meter of place.querySelectorAll("[data-of]")) {
    const one = found[meter.dataset.of];
    meter.hidden = !one;
    if (!one) continue;
    meter.value = one.percent;
    meter.title = `${Math.round(one.percent)} %`;
    const text = meter.parentElement.querySelector("[data-used]");
    text.textContent = `${one.figure}${meter.dataset.of === "gpu" ? " %" : ""} / `;
    meter.parentElement.classList.toggle("is-high", one.percent >= 90);
  }
}

function showAll() {
  const known = JSON.parse(document.getElementById("session-use")?.textContent ?? "{}");
  for (const place of live.querySelectorAll("[data-use]")) {
    if (known[place.dataset.use]) showUse(place, known[place.dataset.use]);
  }
}

function closeMenus(except) {
  for (const menu of live.querySelectorAll("details.menu[open]")) {
    if (menu !== except) menu.open = false;
  }
}

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
  if (event.detail.target === live) showAll();
});
showAll();
