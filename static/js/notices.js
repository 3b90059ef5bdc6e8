// The bell, the toasts and the browser's own notifications: each notification is shown once in a browser, however many of its
// pages are open, and again nowhere once a page has told the server.
import { gettext } from "#i18n";
import { choose, countText, remembered } from "#notice-choice";

const KEY = "gpuplatform.notices.shown";
const LOCK = "gpuplatform.notices";
const HIDDEN_MS = 1500; // a page that is looked at goes first
const TOAST_MS = 8000;
const MOST_TOASTS = 4;

const bell = document.getElementById("bell");
const toasts = document.getElementById("toasts");
let pending = 0;
let timer = null;

function known() {
  try {
    return JSON.parse(localStorage.getItem(KEY)) ?? [];
  } catch {
    return [];
  }
}

function tell(url, values) {
  const body = new URLSearchParams(values);
  return fetch(url, { method: "POST", body, headers: { "X-CSRFToken": bell.dataset.csrf }, keepalive: true }).catch(() => null);
}

function toast(notice) {
  const element = document.getElementById("toast").content.firstElementChild.cloneNode(true);
  element.classList.add(`toast-${notice.level}`, "toast-notice");
  const link = document.createElement("a");
  link.href = notice.url;
  link.textContent = notice.title;
  const body = document.createElement("span");
  body.textContent = notice.body;
  element.querySelector(".toast-body").replaceChildren(link, body);
  toasts.append(element);
  while (toasts.children.length > MOST_TOASTS) toasts.firstElementChild.remove();
  element.addEventListener("hidden.bs.toast", () => element.remove());
  window.tabler.Toast.getOrCreateInstance(element, { autohide: notice.level === "success", delay: TOAST_MS }).show();
}

function notifyByBrowser(notice) {
  const shown = new Notification(notice.title, { body: notice.body, tag: `gpuplatform-${notice.id}` });
  shown.onclick = () => {
    window.focus();
    location.assign(notice.url);
    shown.close();
  };
}

async function showPending() {
  const response = await fetch(bell.dataset.pending, { headers: { Accept: "application/json" } }).catch(() => null);
  if (!response?.ok || response.redirected) return; // asked for again with the next message
  const found = await response.json();
  const mayNotify = window.Notification !== undefined && Notification.permission === "granted";
  const { toasts: shown, browser, done } = choose(found.pending, known(), { isVisible: !document.hidden, mayNotify });
  shown.forEach(toast);
  browser.forEach(notifyByBrowser);
  if (!done.length) return;
  localStorage.setItem(KEY, JSON.stringify(remembered(known(), done)));
  await tell(bell.dataset.shown, done.map((id) => ["ids", id]));
}

// One page of this browser at a time; browsers give locks to secure origins alone.
function showInTurn() {
  if (!pending) return;
  if (navigator.locks) navigator.locks.request(LOCK, showPending);
  else showPending();
}

function schedule() {
  clearTimeout(timer);
  timer = setTimeout(showInTurn, document.hidden ? HIDDEN_MS : 0);
}

function showCount(unread) {
  const count = document.getElementById("bell-count");
  if (!count) return; // the terminal has no bell, but toasts
  count.textContent = countText(unread);
  count.hidden = !unread;
  document.getElementById("bell-button").setAttribute("aria-label", unread ? gettext("Notifications, %(count)s new", { count: countText(unread) }) : gettext("Notifications"));
}

function wire() {
  let wasConnected = false;
  const fetchAnnouncements = () => document.getElementById("announcements") && window.htmx.trigger("#announcements", "announcements:changed");
  document.addEventListener("live:open", () => {
    if (wasConnected) fetchAnnouncements(); // what was announced meanwhile, nobody told
    wasConnected = true;
  });
  document.addEventListener("live:message", ({ detail }) => {
    if ("announcements" in detail) fetchAnnouncements();
    if (!("notices" in detail)) return;
    showCount(detail.notices.unread);
    pending = detail.notices.pending;
    schedule();
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) schedule();
  });
  const panel = document.getElementById("bell-panel");
  if (!panel) return;
  document.getElementById("bell-button").addEventListener("show.bs.dropdown", () => {
    window.htmx.ajax("GET", bell.dataset.panel, { target: panel, swap: "innerHTML" });
  });
  document.addEventListener("htmx:afterSwap", ({ detail }) => {
    if (detail.target !== panel) return;
    window.tabler.Dropdown.getInstance(document.getElementById("bell-button"))?.update(); // it was placed without its content
    const { newest } = panel.querySelector("[data-newest]").dataset;
    if (newest) tell(bell.dataset.read, { up_to: newest, quiet: "1" });
  });
}

if (bell) wire();
