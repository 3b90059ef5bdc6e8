// Uploads of the folder's page: by button, by drag and drop, whole directories too, with a panel that shows them all.
import { write } from "#amounts";
import { isConfirmed } from "#dialog";
import { gettext } from "#i18n";
import { entriesOfDrop, filesOfInput, joined, walk } from "#upload-entries";
import { State, UploadQueue } from "#upload-queue";
import { headline, percent, progressLine, shownItems, Speed, stateText } from "#upload-text";
import { fingerprintOf, Transfer } from "#upload-transfer";

const DRAW_MS = 100;
const REFRESH_MS = 1500; // the list of files is fetched again at most so often
const MAX_ROWS = 60;

const panel = document.getElementById("uploads");
const browser = document.getElementById("browser");
const part = (name) => panel.querySelector(`[data-${name}]`);
const { endpoint, csrf, user, folder, make } = panel.dataset;
const site = { Upload: null, endpoint, csrf, user, folder };
const queue = new UploadQueue((item, events) => new Transfer(item, events, site), { changed: onChange });
const speed = new Speed();
const rows = new Map(); // by item id
let interrupted = [];
let drawTimer = null;
let refreshTimer = null;
let again = null; // the interrupted upload whose file is being chosen

function directory() {
  return browser.querySelector("[data-view=directory][data-can-write]")?.dataset.directory ?? null;
}

function onChange(item) {
  drawTimer ??= setTimeout(draw, DRAW_MS);
  if (item.state === State.DONE) {
    refreshTimer ??= setTimeout(() => {
      refreshTimer = null;
      document.dispatchEvent(new CustomEvent("live:changed"));
    }, REFRESH_MS);
  }
}

function rowOf(item) {
  if (!rows.has(item.id)) {
    const row = part("uploads-row").content.firstElementChild.cloneNode(true);
    row.dataset.id = item.id;
    row.querySelector(".uploads-name").textContent = item.path;
    for (const button of row.querySelectorAll("[data-upload]")) button.setAttribute("aria-label", `${button.title} ${item.path}`);
    rows.set(item.id, row);
  }
  return rows.get(item.id);
}

function drawRow(item) {
  const row = rowOf(item);
  row.dataset.state = item.state;
  row.querySelector(".uploads-state").textContent = stateText(item);
  row.querySelector("progress").value = item.state === State.DONE ? 1 : percent(item) / 100;
  const show = (name, shown) => (row.querySelector(`[data-upload=${name}]`).hidden = !shown);
  show("pause", [State.SENDING, State.OFFLINE, State.WAITING].includes(item.state));
  show("resume", [State.PAUSED, State.FAILED].includes(item.state));
  show("cancel", ![State.DONE, State.SKIPPED, State.CANCELLED].includes(item.state));
  return row;
}

function drawQuestion() {
  const asked = queue.items.filter((item) => item.state === State.CONFLICT);
  const place = part("uploads-question");
  const isNew = place.hidden && asked.length > 0;
  place.hidden = !asked.length;
  if (!asked.length) return;
  const shown = asked.find((item) => item.id === Number(place.dataset.id)) ?? asked[0]; // it never changes below the pointer
  place.dataset.id = shown.id;
  part("question-name").textContent = shown.path;
  if (isNew) part("answer").focus();
}

function draw() {
  drawTimer = null;
  const { items, isActive, totals } = queue;
  panel.hidden = !items.length && !interrupted.length;
  speed.add(totals.sent, performance.now());
  const title = items.length ? headline(totals, isActive) : gettext("Interrupted uploads");
  if (part("uploads-title").textContent !== title) part("uploads-title").textContent = title;
  part("uploads-line").textContent = items.length ? progressLine(totals, isActive ? speed.bytesPerSecond : 0) : "";
  part("uploads-progress").hidden = !items.length;
  part("uploads-progress").value = totals.bytes ? totals.sent / totals.bytes : Number(!isActive);
  const canPause = items.some((item) => [State.SENDING, State.WAITING, State.OFFLINE].includes(item.state));
  panel.querySelector("[data-uploads-all=pause]").hidden = !canPause;
  panel.querySelector("[data-uploads-all=resume]").hidden = canPause || !items.some((item) => item.state === State.PAUSED);
  const close = panel.querySelector("[data-uploads-all=close]");
  close.title = isActive ? gettext("Cancel all and close") : gettext("Close");
  close.setAttribute("aria-label", close.title);
  const shown = shownItems(items, MAX_ROWS);
  const list = part("uploads-list");
  const wanted = [...drawInterrupted(), ...shown.map(drawRow)];
  if (wanted.length !== list.children.length || wanted.some((row, index) => list.children[index] !== row)) list.replaceChildren(...wanted);
  part("uploads-more").hidden = shown.length === items.length;
  part("uploads-more").textContent = `and ${items.length - shown.length} more`;
  drawQuestion();
  if (isActive) drawTimer = setTimeout(draw, 1000); // the speed falls while nothing arrives
}

// Uploads that the server still has from before a reload, or from another browser.
function drawInterrupted() {
  return interrupted.map((each) => {
    each.row ??= interruptedRow(each);
    return each.row;
  });
}

function interruptedRow(each) {
  const row = part("interrupted-row").content.firstElementChild.cloneNode(true);
  row.dataset.interrupted = each.id;
  row.querySelector(".uploads-name").textContent = each.path;
  row.querySelector(".uploads-state").textContent = `interrupted: ${write.size(each.received)} of ${write.size(each.length)} arrived${each.isOurs ? "" : ", from another browser"}`;
  row.querySelector("[data-again]").hidden = !each.isOurs;
  for (const button of row.querySelectorAll("button")) button.setAttribute("aria-label", `${button.textContent.trim()}: ${each.path}`);
  return row;
}

const storage = () => window.tus.defaultOptions.urlStorage;

async function loadInterrupted() {
  const response = await fetch(endpoint, { headers: { Accept: "application/json" } });
  if (!response.ok) return;
  const known = await storage().findAllUploads();
  const { results } = await response.json();
  interrupted = results.map((each) => {
    const stored = known.find((one) => one.uploadUrl?.includes(each.id));
    return { ...each, stored, isOurs: Boolean(stored?.urlStorageKey.includes(`gpuplatform:${user}:${folder}:`)) };
  });
  draw();
}

async function discard(each) {
  await fetch(`${endpoint}${each.id}/`, { method: "DELETE", headers: { "Tus-Resumable": "1.0.0", "X-CSRFToken": csrf } });
  if (each.stored) await storage().removeUpload(each.stored.urlStorageKey);
  forget(each);
}

function forget(each) {
  interrupted = interrupted.filter((one) => one !== each);
  draw();
}

function resumeWith(file) {
  const chosen = again;
  if (!chosen || !file) return;
  if (!chosen.stored.urlStorageKey.includes(fingerprintOf(site, { path: chosen.path, file }))) {
    chosen.row.querySelector(".uploads-state").textContent = gettext("This is another file, or it was changed since. Choose the same one, or discard this and upload it anew.");
    return;
  }
  add([{ file, path: chosen.path }], "");
}

function add(files, place) {
  site.Upload = window.tus.Upload;
  if (!queue.isActive) {
    queue.clear();
    rows.clear();
  }
  const items = files.map(({ file, path }) => ({ file, path: joined(place, path), size: file.size }));
  const keys = new Set(items.map((item) => fingerprintOf(site, item)));
  interrupted = interrupted.filter((each) => ![...keys].some((key) => each.stored?.urlStorageKey.includes(key)));
  queue.add(items);
  draw();
}

async function makeDirectories(paths, place) {
  for (const path of paths) {
    const parts = joined(place, path).split("/");
    const body = new URLSearchParams({ name: parts.pop(), path: parts.join("/"), parents: "1" });
    await fetch(make, { method: "POST", body, headers: { "X-CSRFToken": csrf, "HX-Request": "true" } });
  }
  if (paths.length) document.dispatchEvent(new CustomEvent("live:changed"));
}

async function onAll(action) {
  if (action === "pause") queue.pauseAll();
  if (action === "resume") queue.resumeAll();
  if (action === "close") {
    const question = gettext("Cancel all uploads that have not ended?");
    if (queue.isActive && !(await isConfirmed(question, gettext("Cancel all")))) return;
    queue.cancelAll();
    queue.clear();
    rows.clear();
    interrupted = [];
  }
  draw();
}

function onPanelClick(event) {
  const button = event.target.closest("button");
  if (!button) return;
  const { uploadsAll, answer, upload } = button.dataset;
  if (uploadsAll) onAll(uploadsAll);
  if (answer) {
    const box = part("answer-all");
    queue.answer(queue.find(Number(part("uploads-question").dataset.id)), answer, { forAll: box.checked });
  }
  if (upload) queue[upload](queue.find(Number(button.closest("li").dataset.id)));
  const each = interrupted.find((one) => one.id === button.closest("[data-interrupted]")?.dataset.interrupted);
  if (each && "again" in button.dataset) {
    again = each;
    document.getElementById("pick-again").click();
  }
  if (each && "discard" in button.dataset) discard(each);
}

function bindPickers() {
  for (const kind of ["files", "directory"]) {
    const input = document.getElementById(`pick-${kind}`);
    input.addEventListener("change", () => {
      if (directory() !== null) add(filesOfInput(input), directory());
      input.value = ""; // the same files can be chosen again
    });
  }
  const input = document.getElementById("pick-again");
  input.addEventListener("change", () => {
    resumeWith(input.files[0]);
    input.value = "";
  });
  browser.addEventListener("click", (event) => {
    const pick = event.target.closest("[data-pick]");
    if (pick) document.getElementById(`pick-${pick.dataset.pick}`).click();
  });
}

function bindDrop() {
  let depth = 0; // dragenter and dragleave come for every element that is passed
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  const show = (isShown) => {
    const overlay = browser.querySelector("[data-drop-overlay]");
    if (overlay) overlay.hidden = !isShown;
  };
  addEventListener("dragenter", (event) => {
    if (!hasFiles(event)) return;
    depth += 1;
    show(directory() !== null);
  });
  addEventListener("dragleave", (event) => {
    if (!hasFiles(event)) return;
    depth = Math.max(0, depth - 1);
    if (!depth) show(false);
  });
  document.addEventListener("htmx:afterSwap", () => depth && show(directory() !== null)); // an update brings it hidden
  addEventListener("dragover", (event) => {
    if (hasFiles(event)) event.preventDefault(); // else the browser opens the file in place of the page
  });
  addEventListener("drop", async (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    depth = 0;
    show(false);
    const place = directory();
    if (place === null) return;
    const entries = entriesOfDrop(event.dataTransfer);
    const plain = entries.length ? [] : [...event.dataTransfer.files].map((file) => ({ file, path: file.name }));
    const found = await walk(entries);
    if (found.files.length || plain.length) add([...found.files, ...plain], place);
    await makeDirectories(found.directories, place);
  });
}

panel.addEventListener("click", onPanelClick);
bindPickers();
bindDrop();
addEventListener("online", () => queue.items.filter((item) => item.state === State.OFFLINE).forEach((item) => item.transfer.retry()));
addEventListener("beforeunload", (event) => {
  if (queue.isActive) event.preventDefault();
});
addEventListener("load", () => loadInterrupted().catch(() => {})); // tus-js-client is there by then
