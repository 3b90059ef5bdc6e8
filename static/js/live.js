// Keeps [data-live] up to date: the socket says that something changed, htmx fetches the part again and morphs it in.
// Ticks, open details, focus and what is being typed survive. data-live="" listens to all, data-live="<id>" to one.
import { Backoff } from "#backoff";

const QUIET_MS = 100; // changes within this span are fetched once
const SIGNED_OUT = 4401;

const live = document.querySelector("[data-live]");
const state = document.getElementById("live-state");
const backoff = new Backoff(500, 15_000);
let timer = null;

function refresh() {
  clearTimeout(timer);
  timer = setTimeout(() => window.htmx.trigger(live, "live:refresh"), QUIET_MS);
}

function show(connected) {
  state.classList.toggle("is-offline", !connected);
  const text = connected ? "Live" : "Offline, reconnecting…";
  const label = state.querySelector("[data-live-text]");
  if (label.textContent !== text) label.textContent = text;
  state.hidden = false;
}

function connect() {
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  const socket = new WebSocket(`${scheme}//${location.host}/ws/sessions/`);
  socket.addEventListener("open", () => {
    show(true);
    backoff.reset();
    refresh(); // changes since the page was rendered, or while offline, were not sent
  });
  socket.addEventListener("message", (event) => {
    const { session } = JSON.parse(event.data);
    if (!live.dataset.live || !session || live.dataset.live === session) refresh(); // none: many have changed
  });
  socket.addEventListener("close", (event) => {
    if (event.code === SIGNED_OUT) {
      location.reload();
      return;
    }
    show(false);
    setTimeout(connect, backoff.next());
  });
}

function keep(name, element, change) {
  if (name === "checked" && element.name === "ids") return false;
  if (name === "open" && change === "remove") return false;
  return true;
}

function countTicks() {
  const boxes = [...live.querySelectorAll("input[name=ids]")];
  const ticked = boxes.filter((box) => box.checked).length;
  const all = live.querySelector("[data-tick-all]");
  if (all) {
    all.checked = boxes.length > 0 && ticked === boxes.length;
    all.indeterminate = ticked > 0 && ticked < boxes.length;
  }
  for (const bar of live.querySelectorAll("[data-ticked-bar]")) bar.classList.toggle("has-ticks", ticked > 0);
  for (const place of live.querySelectorAll("[data-ticked-count]")) place.textContent = ticked;
}

if (live) {
  Object.assign(window.Idiomorph.defaults, { ignoreActiveValue: true, restoreFocus: true });
  window.Idiomorph.defaults.callbacks.beforeAttributeUpdated = keep;
  // A running <time> shows more than the server wrote; it is written again only when its moment differs.
  window.Idiomorph.defaults.callbacks.beforeNodeMorphed = (old, next) =>
    !(old.nodeName === "TIME" && next.nodeName === "TIME" && old.dateTime === next.dateTime && old.dataset.end === next.dataset.end);
  live.addEventListener("change", (event) => {
    if (event.target.matches("[data-tick-all]")) {
      for (const box of live.querySelectorAll("input[name=ids]")) box.checked = event.target.checked;
    }
    countTicks();
  });
  document.addEventListener("htmx:afterSwap", countTicks);
  document.addEventListener("live:changed", refresh);
  countTicks();
  connect();
}
