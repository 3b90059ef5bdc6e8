// Keeps [data-live] up to date: the socket says that something changed, htmx fetches the part again and morphs it in.
// Ticks, open details, focus and what is being typed survive. data-live="" listens to all, data-live="<id> <id>" to some.
// While nothing is heard, all that may be out of date is greyed and says since when; [data-live-poll] is fetched every few seconds.
//
// Other modules take part by events of the document: "live:open" once connected and "live:message" with each message,
// whose default action is to fetch again, "live:send" to send one, "live:changed" to fetch again.
import { gettext, locale } from "#i18n";
import { LiveConnection } from "#live-connection";

const QUIET_MS = 100; // changes within this span are fetched once
const POLL_MS = 5000; // between two fetches while the socket is down

const live = document.querySelector("[data-live]");
const pageState = document.getElementById("live-state");
const state = pageState ?? document.getElementById("site-connection"); // which shows nothing but trouble
const clock = new Intl.DateTimeFormat(locale, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
let timer = null;
let poll = null;

function refresh() {
  if (!live) return;
  clearTimeout(timer);
  timer = setTimeout(() => window.htmx.trigger(live, "live:refresh"), QUIET_MS);
}

function words(name) {
  if (name === "live") return gettext("Live");
  if (name === "connecting") return gettext("Connecting…");
  if (!connection.heardAt) return gettext("Not connected");
  return gettext("Not connected. As of %(time)s", { time: clock.format(connection.heardAt) });
}

function show(name) {
  const isDown = name === "silent" || name === "lost";
  clearInterval(poll);
  if (isDown && live?.dataset.livePoll !== undefined) poll = setInterval(refresh, POLL_MS);
  document.documentElement.dataset.connection = name;
  document.documentElement.classList.toggle("is-out-of-date", isDown);
  if (!state) return;
  state.classList.toggle("is-offline", isDown);
  const label = state.querySelector("[data-live-text]");
  const text = words(name);
  if (label.textContent !== text) label.textContent = text;
  state.querySelector("[data-reconnect]").hidden = !isDown;
  state.hidden = !pageState && !isDown;
}

function received(message) {
  const event = new CustomEvent("live:message", { detail: message, cancelable: true });
  if (!document.dispatchEvent(event) || !live || !("session" in message)) return;
  const { session } = message;
  if (!live.dataset.live || !session || live.dataset.live.split(" ").includes(session)) refresh(); // none: many have changed
}

function socketUrl() {
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  return `${scheme}//${location.host}${live?.dataset.liveSocket ?? "/ws/sessions/"}`;
}

const connection = new LiveConnection(socketUrl(), {
  opened() {
    // Changes since the page was rendered, or while offline, were not sent. A listener may find out whether there are.
    if (document.dispatchEvent(new CustomEvent("live:open", { cancelable: true }))) refresh();
  },
  message: received,
  signedOut: () => location.reload(),
  state: show,
});

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

function wireMorphing() {
  Object.assign(window.Idiomorph.defaults, { ignoreActiveValue: true, restoreFocus: true });
  window.Idiomorph.defaults.callbacks.beforeAttributeUpdated = keep;
  // What has [data-keep] is drawn by a script. A running <time> shows more than the server wrote; it is written again only when its moment differs.
  window.Idiomorph.defaults.callbacks.beforeNodeMorphed = (old, next) =>
    old.dataset?.keep === undefined && !(old.nodeName === "TIME" && next.nodeName === "TIME" && old.dateTime === next.dateTime && old.dataset.end === next.dataset.end);
  live.addEventListener("change", (event) => {
    if (event.target.matches("[data-tick-all]")) {
      for (const box of live.querySelectorAll("input[name=ids]")) box.checked = event.target.checked;
    }
    countTicks();
  });
  document.addEventListener("htmx:afterSwap", countTicks);
  document.addEventListener("live:changed", refresh);
  countTicks();
}

function wireConnection() {
  addEventListener("offline", () => connection.wentOffline());
  addEventListener("online", () => connection.check());
  document.addEventListener("visibilitychange", () => (document.hidden ? connection.pause() : connection.resume()));
  document.addEventListener("live:send", (event) => connection.send(event.detail));
  state?.querySelector("[data-reconnect]").addEventListener("click", () => connection.reconnect());
  if (document.hidden) connection.pause();
  document.addEventListener("DOMContentLoaded", () => connection.connect()); // the page's other modules listen by then
}

if (live) wireMorphing();
wireConnection();
