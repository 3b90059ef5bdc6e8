// The page of a folder: its links change only #browser, so that uploads go on; entries are chosen by mouse and keys.
import { isConfirmed } from "#dialog";
import { Selection } from "#folder-selection";
import { gettext } from "#i18n";
import { keepsNotebook, showNotebook } from "#notebook";

const browser = document.getElementById("browser");
const MAX_URL_LENGTH = 8000;
let selection = new Selection();
let directory = null; // of which the selection is
let shownUrl = location.href;
let cameFrom = ""; // the directory that was left upwards: the cursor is put on it

const view = () => browser.querySelector("[data-view]");
const rows = () => [...browser.querySelectorAll("[data-entries] tbody tr[data-path]")];
const rowOf = (path) => rows().find((row) => row.dataset.path === path);
const boxOf = (row) => row.querySelector("input[type=checkbox]");
const entryOf = (row) => row.querySelector("[data-entry]");

function isUnsaved() {
  const editor = browser.querySelector("[data-editor]");
  return Boolean(editor && "unsaved" in editor.dataset);
}

async function mayLeave() {
  return !isUnsaved() || isConfirmed(gettext("Leave without saving what you typed?"), gettext("Leave without saving"));
}

// Shows another view of the folder in place.
async function go(url, { push = true } = {}) {
  if (push) {
    if (!(await mayLeave())) return;
    cameFrom = browser.querySelector("[data-view=directory]")?.dataset.directory ?? "";
    history.pushState({ folder: true }, "", url);
  }
  shownUrl = location.href;
  window.htmx.ajax("GET", url, { source: browser, target: browser, swap: "innerHTML" }).then(focusEntry);
}

// After a way up, the cursor is on the directory that was left, else on the first entry.
function focusEntry() {
  if (document.activeElement !== document.body && browser.contains(document.activeElement)) return;
  const left = rows().find((row) => row.dataset.path && cameFrom.startsWith(row.dataset.path));
  const row = left ?? rows()[0];
  const target = row ? entryOf(row) : document.getElementById("content");
  target?.focus({ preventScroll: !left });
}

function draw() {
  const selected = new Set(selection.selected);
  for (const row of rows()) {
    const isSelected = selected.has(row.dataset.path);
    row.classList.toggle("is-chosen", isSelected);
    if (boxOf(row)) boxOf(row).checked = isSelected;
  }
  const all = browser.querySelector("[data-tick-all]");
  if (all) {
    all.checked = rows().length > 0 && selected.size === rows().length;
    all.indeterminate = selected.size > 0 && !all.checked;
  }
  browser.querySelector("[data-ticked-bar]")?.classList.toggle("has-ticks", selected.size > 0);
  for (const place of browser.querySelectorAll("[data-ticked-count]")) place.textContent = selected.size;
  const rename = document.getElementById("rename-chosen");
  if (rename) rename.hidden = selected.size !== 1;
}

function onSwap() {
  showNotebook();
  const shown = view();
  if (!shown) return;
  document.title = `${shown.dataset.title} · GPU Platform`;
  const place = `${shown.dataset.view}:${shown.dataset.directory ?? ""}`;
  if (place !== directory) selection = new Selection();
  directory = place;
  selection.replaceKeys(rows().map((row) => row.dataset.path));
  draw();
}

function openRename(path) {
  const link = document.getElementById("rename-chosen");
  if (!link) return;
  const url = `${link.dataset.rename}?${new URLSearchParams({ path })}`;
  window.htmx.ajax("GET", url, { source: link, target: "#dialog-body", swap: "innerHTML" });
}

// One file is downloaded as it is, more as an archive. By a link, since a form that is sent looks like leaving the page.
function download(event) {
  const button = event.target.closest("#download-chosen");
  const paths = selection.selected;
  const single = paths.length === 1 && rowOf(paths[0]).querySelector("a[download]");
  const archive = `${button.formAction}?${new URLSearchParams(paths.map((path) => ["path", path]))}`;
  if (!single && (!paths.length || archive.length > MAX_URL_LENGTH)) return; // the form can carry it
  event.preventDefault();
  const link = document.createElement("a");
  link.href = single ? single.href : archive;
  link.download = "";
  link.click();
}

function choose(row, event) {
  const path = row.dataset.path;
  if (event.shiftKey) selection.extendTo(path);
  else selection.toggle(path);
  draw();
}

const isPlain = (event) => event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;

function onClick(event) {
  const link = event.target.closest("[data-nav]");
  if (link && isPlain(event)) {
    event.preventDefault();
    go(link.href);
    return;
  }
  if (event.target.closest("[data-untick]")) {
    selection.clear();
    draw();
    return;
  }
  if (event.target.closest("#download-chosen")) download(event);
  if (event.target.closest("#rename-chosen")) {
    event.preventDefault();
    openRename(selection.selected[0]);
    return;
  }
  const row = event.target.closest("[data-entries] tbody tr[data-path]");
  if (!row || !boxOf(row) || event.target.closest("a, button")) return;
  if (event.shiftKey) getSelection()?.removeAllRanges();
  choose(row, event);
}

const STEPS = { ArrowUp: -1, ArrowDown: 1, PageUp: -15, PageDown: 15, Home: -Infinity, End: Infinity };

function moveCursor(event) {
  const current = document.activeElement.closest("tr[data-path]");
  const paths = rows().map((row) => row.dataset.path);
  if (!paths.length) return;
  if (current && current.dataset.path !== selection.cursor) selection.place(current.dataset.path);
  if (current) selection.move(STEPS[event.key], { extend: event.shiftKey });
  draw();
  entryOf(rowOf(selection.cursor))?.focus();
}

// Keys with which the entries of a list are worked on; `row` is where the focus is.
const KEYS = {
  " ": (row) => {
    selection.toggle(row.dataset.path);
    draw();
  },
  F2: (row) => openRename(row.dataset.path),
  Delete: (row) => {
    if (!selection.selected.length) selection.choose(row.dataset.path);
    draw();
    document.getElementById("trash-chosen")?.click();
  },
  Escape: () => {
    selection.clear();
    draw();
  },
};

function goUp() {
  const above = [...browser.querySelectorAll("[data-up]")].at(-1);
  if (above) go(above.href);
}

function onEntryKey(event, row) {
  const isAll = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "a";
  if (!isAll && !(event.key in STEPS) && !(event.key in KEYS)) return;
  event.preventDefault();
  if (isAll) {
    selection.selectAll();
    draw();
  } else if (event.key in STEPS) {
    moveCursor(event);
  } else if (boxOf(row) || event.key === "Escape") {
    KEYS[event.key](row);
  }
}

function onKey(event) {
  if (document.querySelector("dialog[open]")) return;
  if (event.altKey && event.key === "ArrowUp") {
    event.preventDefault();
    goUp();
    return;
  }
  const row = document.activeElement.closest("[data-entries] tbody tr[data-path]");
  if (row && !event.altKey && !document.activeElement.matches("button")) onEntryKey(event, row);
}

// A name's ending is seldom what is renamed.
function selectStem() {
  const input = document.querySelector("#dialog[open] [data-select-stem]");
  if (!input) return;
  input.removeAttribute("data-select-stem"); // once
  input.focus();
  const dot = input.value.lastIndexOf(".");
  input.setSelectionRange(0, dot > 0 ? dot : input.value.length);
}

// An update of what is shown must not take away what is being typed.
function onRequest(event) {
  const isUpdate = event.detail.requestConfig.triggeringEvent?.type === "live:changed";
  if (isUpdate && browser.querySelector("[data-editor]")) event.preventDefault();
}

window.Idiomorph.defaults.restoreFocus = true;
window.Idiomorph.defaults.callbacks.beforeNodeMorphed = (old, next) => !keepsNotebook(old, next);
browser.addEventListener("htmx:beforeRequest", onRequest);
document.addEventListener("htmx:afterSwap", onSwap);
document.addEventListener("htmx:afterSettle", selectStem); // when dialog.js has opened the dialog
document.addEventListener("folder:done", (event) => {
  if (event.detail.url) go(event.detail.url);
});
document.addEventListener("folder:go", (event) => go(event.detail.url));
addEventListener("popstate", () => {
  const { href } = location;
  if (!isUnsaved()) {
    go(href, { push: false });
    return;
  }
  history.pushState({ folder: true }, "", shownUrl); // it is left once that is confirmed
  go(href);
});
addEventListener("beforeunload", (event) => {
  if (isUnsaved()) event.preventDefault();
});
browser.addEventListener("click", onClick);
document.addEventListener("keydown", onKey);
browser.addEventListener("change", (event) => {
  if (!event.target.matches("[data-tick-all]")) return;
  if (event.target.checked) selection.selectAll();
  else selection.clear();
  draw();
});
onSwap();
