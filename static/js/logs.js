// The log panel: follows while the session runs, keeps to the end while its reader is at the end, and finds text in it.
import { gettext } from "#i18n";
import { located, occurrences, step } from "#log-search";

const FOLLOW_MS = 2000;
const NEAR_END_PIXELS = 24;
const WRAP_KEY = "gpuplatform.log.unwrapped";
const panel = document.getElementById("log-text");
const follow = document.getElementById("log-follow");
const wrap = document.getElementById("log-wrap");
const button = document.getElementById("log-refresh");
const search = document.getElementById("log-search");
const field = search.querySelector("input");
let atEnd = true;
let matches = [];
let current = -1;

function toEnd() {
  panel.scrollTop = panel.scrollHeight;
}

function again() {
  if (follow.checked && !follow.disabled && !document.hidden && !window.getSelection().containsNode(panel, true)) {
    window.htmx.trigger(button, "click");
  }
}

function setWrap(isWrapped) {
  wrap.checked = isWrapped;
  panel.classList.toggle("is-unwrapped", !isWrapped);
  localStorage.setItem(WRAP_KEY, isWrapped ? "" : "1");
}

// Returns a Range for each match of what is in the search field.
function find() {
  const walker = document.createTreeWalker(panel, NodeFilter.SHOW_TEXT);
  const nodes = [];
  while (walker.nextNode()) nodes.push(walker.currentNode);
  const lengths = nodes.map((node) => node.length);
  const found = occurrences(nodes.map((node) => node.data).join(""), field.value);
  const places = located(lengths, found.flatMap(([start, end]) => [start, end - 1]));
  return found.map((match, index) => {
    const range = document.createRange();
    const [[first, from], [last, until]] = places.slice(2 * index, 2 * index + 2);
    range.setStart(nodes[first], from);
    range.setEnd(nodes[last], until + 1);
    return range;
  });
}

function show(moves) {
  const words = matches.length ? gettext("%(number)s of %(count)s", { number: current + 1, count: matches.length }) : gettext("Not found");
  search.querySelector("[data-log-found]").textContent = field.value ? words : "";
  for (const each of search.querySelectorAll("[data-log-step]")) each.disabled = matches.length === 0;
  if (globalThis.CSS?.highlights) {
    CSS.highlights.set("log-match", new Highlight(...matches));
    CSS.highlights.set("log-current", new Highlight(...matches.slice(Math.max(0, current), current + 1)));
  }
  if (!moves || current < 0) return;
  const place = matches[current].getBoundingClientRect();
  const frame = panel.getBoundingClientRect();
  panel.scrollTop += place.top - frame.top - panel.clientHeight / 2;
  if (place.left < frame.left || place.right > frame.right) panel.scrollLeft += place.left - frame.left - panel.clientWidth / 2;
}

function searchAnew(moves) {
  matches = find();
  if (moves || current >= matches.length) current = matches.length - 1; // the newest
  show(moves);
}

function move(by) {
  current = step(current, by, matches.length);
  show(true);
}

search.addEventListener("submit", (event) => event.preventDefault());
field.addEventListener("input", () => searchAnew(true));
field.addEventListener("keydown", (event) => {
  if (event.key === "Enter") move(event.shiftKey ? -1 : 1);
});
for (const each of search.querySelectorAll("[data-log-step]")) each.addEventListener("click", () => move(Number(each.dataset.logStep)));
wrap.addEventListener("change", () => setWrap(wrap.checked));
follow.addEventListener("change", () => {
  if (follow.checked) toEnd();
  again();
});
document.addEventListener("htmx:configRequest", (event) => {
  if (event.detail.elt === button) event.detail.parameters.digest = panel.querySelector("[data-digest]")?.dataset.digest ?? "";
});
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target === panel) atEnd = panel.scrollHeight - panel.scrollTop - panel.clientHeight < NEAR_END_PIXELS;
});
document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target === panel) {
    if (atEnd && !field.value) toEnd();
    if (field.value) searchAnew(false);
  }
  if (event.detail.target.id === "live") window.htmx.trigger(button, "click"); // its last words come with its end
});
setInterval(again, FOLLOW_MS);
setWrap(!localStorage.getItem(WRAP_KEY));
toEnd();
