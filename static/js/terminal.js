// The terminal's page: xterm.js on one Connection, the buttons of its header, and what is said when it ends.
import "#terminal-styles";
import { gettext, locale } from "#i18n";
import { setTitle } from "#tab-title";
import { copyText, readText } from "#terminal-clipboard";
import { Code, Connection } from "#terminal-connection";
import { CopyRequest } from "#terminal-copy-request";
import { FitAddon } from "@xterm/addon-fit";
import { Unicode11Addon } from "@xterm/addon-unicode11";
import { WebLinksAddon } from "@xterm/addon-web-links";
import { Terminal } from "@xterm/xterm";

const FONT_KEY = "gpuplatform.terminal.font-size";
const FONT = { smallest: 8, usual: 14, largest: 32 };
const NOTICE_MS = 2500;
const RESIZE_MS = 80; // a dragged window is resized once it rests
// Leaves whatever mode the lost shell was in; a tmux that is attached again draws its own screen over the rest.
const LEAVE_ALTERNATE = "\x18\x1b[?1049l";
const LEAVE_MODES = "\x18\x1b[!p\x1b[?1000;1002;1003;1004;1006;2004l\x1b[0m\r\n";
const THEMES = {
  light: {
    background: "#ffffff", foreground: "#1f2937", cursor: "#1f2937", cursorAccent: "#ffffff",
    selectionBackground: "#bfdbfe", black: "#1f2937", red: "#b91c1c", green: "#15803d", yellow: "#a16207",
    blue: "#1d4ed8", magenta: "#a21caf", cyan: "#0e7490", white: "#6b7280", brightBlack: "#4b5563",
    brightRed: "#dc2626", brightGreen: "#16a34a", brightYellow: "#ca8a04", brightBlue: "#2563eb",
    brightMagenta: "#c026d3", brightCyan: "#0891b2", brightWhite: "#374151",
  },
  dark: {
    background: "#0f1620", foreground: "#dce1e7", cursor: "#dce1e7", cursorAccent: "#0f1620",
    selectionBackground: "#2f4a6d", black: "#1c2633", red: "#f87171", green: "#4ade80", yellow: "#facc15",
    blue: "#60a5fa", magenta: "#e879f9", cyan: "#22d3ee", white: "#dce1e7", brightBlack: "#6b7a90",
    brightRed: "#fca5a5", brightGreen: "#86efac", brightYellow: "#fde047", brightBlue: "#93c5fd",
    brightMagenta: "#f0abfc", brightCyan: "#67e8f9", brightWhite: "#ffffff",
  },
};

const screen = document.getElementById("terminal");
const state = document.getElementById("terminal-state");
const overlay = document.getElementById("terminal-overlay");
const dialog = document.getElementById("dialog");
const help = document.getElementById("terminal-help");
const name = screen.dataset.name;
const encoder = new TextEncoder();
const clock = new Intl.DateTimeFormat(locale, { hour: "2-digit", minute: "2-digit", second: "2-digit" });

const terminal = new Terminal({
  allowProposedApi: true, // the width tables of Unicode 11
  cursorBlink: true,
  fontFamily: getComputedStyle(screen).fontFamily,
  fontSize: storedFontSize(),
  lineHeight: 1.2, // at 1.0 some fonts lose their underscores below the row
  minimumContrastRatio: 4.5, // programs choose colours for a dark or a light screen, not for both
  macOptionClickForcesSelection: true,
  rightClickSelectsWord: false,
  scrollback: 10_000,
  theme: currentTheme(),
});
const fit = new FitAddon();
const connection = new Connection(socketUrl(), {
  connecting() {
    notRunning = {};
    if (state.dataset.state !== "lost" && !isPaused) show("connecting", gettext("Connecting…"));
  },
  opened() {
    if (wasConnected && !isPaused) leaveModes();
    connection.resize(terminal.cols, terminal.rows);
  },
  output(bytes) {
    if (isPaused) goOn();
    if (state.dataset.state !== "open") show("open", gettext("Connected"));
    wasConnected = true;
    terminal.write(bytes, () => connection.drawn(bytes.length));
  },
  silent: () => show("silent", gettext("No connection since %(time)s. What you type is not sent.", { time: clock.format(new Date()) })),
  alive: () => show("open", gettext("Connected")),
  unsent: () => notice(gettext("Not sent: there is no connection")),
  told,
  lost: (words) => show("lost", words ? gettext("%(problem)s Trying again…", { problem: words }) : gettext("No connection. What you type is not sent. Reconnecting…")),
  ended: showEnd,
});
const copyRequest = new CopyRequest(document.getElementById("terminal-copy"), copy, () => terminal.focus());
let notRunning = {}; // why the session does not run, as the server has said: {ended: words, state}
let isPaused = false; // the session does not run now, and may again
let isTrying = false; // whether it does
let hasChanged = false; // since that was tried last
let offered = null; // what had the focus when that was said last
let wasConnected = false;
let noticeTimer = null;
let resizeTimer = null;

function socketUrl() {
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  return `${scheme}//${location.host}${screen.dataset.socket}`;
}

function currentTheme() {
  return THEMES[document.documentElement.getAttribute("data-bs-theme") === "dark" ? "dark" : "light"];
}

function show(kind, text) {
  state.dataset.state = kind;
  state.querySelector("[data-text]").textContent = text;
  state.title = text;
  screen.classList.toggle("is-out-of-date", kind === "silent" || kind === "lost");
  document.getElementById("terminal-reconnect").hidden = kind !== "silent" && kind !== "lost";
  if (kind === "connecting" || kind === "open") overlay.hidden = true;
}

function leaveModes() {
  if (terminal.buffer.active.type === "alternate") terminal.write(LEAVE_ALTERNATE);
  terminal.write(LEAVE_MODES);
}

function notice(text) {
  const place = document.getElementById("terminal-notice");
  place.textContent = text;
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => (place.textContent = ""), NOTICE_MS);
}

// The server says when the session ends by its limits or as idle, or why it does not run.
function told(message) {
  if ("ended" in message) notRunning = message;
  if (!("ends_at" in message)) return;
  const place = document.getElementById("terminal-left");
  place.hidden = !message.ends_at;
  place.querySelector("time").dateTime = message.ends_at ?? "";
  document.getElementById("terminal-snooze").hidden = !message.idle;
  const extend = document.getElementById("terminal-extend");
  if (extend) extend.hidden = Boolean(message.idle);
}

const ENDS = {
  [Code.exited]: { title: gettext("The shell has ended"), action: gettext("New shell") },
  [Code.ended]: { title: gettext("The session has ended"), action: "" },
  [Code.notFound]: { title: gettext("This session is not running"), action: "" },
  [Code.signedOut]: { title: gettext("You are signed out"), action: gettext("Sign in") },
  [Code.broken]: { title: gettext("The terminal lost the thread"), action: gettext("Connect again") },
};

const PAUSES = {
  parking: { title: gettext("The session is being parked"), action: "" },
  parked: { title: gettext("The session is parked"), action: "" },
  waiting: { title: gettext("The session waits to run again"), action: "" },
};

function showEnd(code, words) {
  const isOver = notRunning.state === "ended";
  const { title, action } = PAUSES[notRunning.state] ?? ENDS[isOver ? Code.ended : code];
  hasChanged ||= !isPaused; // it may have, unheard
  isPaused = notRunning.state in PAUSES;
  isTrying = false;
  show("ended", gettext("Closed"));
  overlay.querySelector("[data-title]").textContent = title;
  overlay.querySelector("[data-words]").textContent = notRunning.ended || (words.startsWith(title) ? "" : words);
  overlay.querySelector("[data-paused]").hidden = !isPaused;
  overlay.querySelector("[data-resume]").hidden = notRunning.state !== "parked";
  overlay.querySelector("[data-launch]").hidden = isPaused || (code !== Code.ended && !isOver);
  const button = overlay.querySelector("[data-again]");
  button.hidden = !action;
  button.textContent = action;
  button.onclick = () => (code === Code.signedOut ? location.reload() : again());
  const first = action ? button : overlay.querySelector("a:not([hidden])");
  const isNew = overlay.hidden || first !== offered;
  overlay.hidden = false;
  offered = first;
  if (isNew && !dialog.open) first.focus();
  document.getElementById("terminal-left").hidden = true;
  if (hasChanged) tryAgain();
}

// A session that was parked may be resumed, here or elsewhere: with each change of it, look whether it runs.
function tryAgain() {
  hasChanged = isTrying;
  if (!isPaused || isTrying) return;
  isTrying = true;
  connection.open();
}

function goOn() {
  isPaused = isTrying = false;
  if (wasConnected) leaveModes();
  if (!dialog.open) terminal.focus();
}

function again() {
  connection.open();
  terminal.focus();
}

async function copy(text) {
  if (!text) {
    notice(gettext("Select text first"));
    return;
  }
  notice((await copyText(text)) ? gettext("Copied") : gettext("The browser did not allow copying"));
}

async function paste() {
  const text = await readText();
  terminal.focus();
  if (text === null) notice(gettext("Press Ctrl+Shift+V (⌘V on a Mac) to paste"));
  else terminal.paste(text);
}

// Returns whether xterm.js may deal with the key; keys left to the browser are its own paste shortcuts.
function allowKey(event) {
  if (event.type !== "keydown" || event.altKey || event.metaKey) return true;
  if (event.ctrlKey && event.code === "KeyC" && (event.shiftKey || terminal.hasSelection())) {
    event.preventDefault();
    copy(terminal.getSelection());
    if (!event.shiftKey) terminal.clearSelection();
    return false;
  }
  const pastes = (event.ctrlKey && event.shiftKey && event.code === "KeyV") || (event.shiftKey && event.key === "Insert");
  return !pastes;
}

function storedFontSize() {
  const size = Number(localStorage.getItem(FONT_KEY));
  return size >= FONT.smallest && size <= FONT.largest ? size : FONT.usual;
}

function changeFont(step) {
  const size = Math.min(FONT.largest, Math.max(FONT.smallest, terminal.options.fontSize + step));
  terminal.options.fontSize = size;
  localStorage.setItem(FONT_KEY, String(size));
  fit.fit();
  terminal.focus();
}

function ring() {
  state.classList.remove("is-ringing");
  void state.offsetWidth; // starts the animation anew
  state.classList.add("is-ringing");
  if (document.hidden) setTitle(`🔔 ${name}`);
}

function wire() {
  terminal.onData((text) => {
    const isFocus = text === "\x1b[I" || text === "\x1b[O"; // reported by xterm.js, not typed
    if (!isFocus || connection.isOpen) connection.send(encoder.encode(text));
  });
  terminal.onBinary((text) => connection.send(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
  terminal.onResize(({ cols, rows }) => {
    clearTimeout(resizeTimer);
    resizeTimer = setTimeout(() => connection.resize(cols, rows), RESIZE_MS);
  });
  terminal.onTitleChange((title) => setTitle(title ? `${title} · ${name}` : name));
  terminal.onBell(ring);
  terminal.attachCustomKeyEventHandler(allowKey);
  terminal.parser.registerOscHandler(52, (data) => {
    copyRequest.ask(data);
    return true;
  });
  copyRequest.watch(screen);
  screen.addEventListener("mouseup", () => {
    if (terminal.hasSelection()) copy(terminal.getSelection());
  });
  new ResizeObserver(() => fit.fit()).observe(screen);
  new MutationObserver(() => (terminal.options.theme = currentTheme())).observe(document.documentElement, {
    attributeFilter: ["data-bs-theme"],
  });
  addEventListener("online", () => connection.check());
  addEventListener("offline", () => connection.wentOffline());
  document.addEventListener("visibilitychange", () => (document.hidden ? connection.pause() : connection.resume()));
  document.getElementById("terminal-reconnect").addEventListener("click", () => {
    connection.reconnect();
    terminal.focus();
  });
  dialog.addEventListener("close", () => (overlay.hidden ? terminal : offered).focus());
  document.addEventListener("live:open", tryAgain);
  document.addEventListener("live:message", ({ detail }) => {
    if ("session" in detail && (!detail.session || detail.session === screen.dataset.session)) tryAgain();
  });
}

function wireButtons() {
  const actions = {
    smaller: () => changeFont(-1),
    larger: () => changeFont(1),
    copy: () => copy(terminal.getSelection()).then(() => terminal.focus()),
    paste,
    help: () => help.showModal(),
    "close-help": () => help.close(),
  };
  for (const button of document.querySelectorAll("[data-do]")) button.addEventListener("click", actions[button.dataset.do]);
  help.addEventListener("close", () => terminal.focus());
  help.addEventListener("click", (event) => {
    if (event.target === help) help.close(); // the backdrop
  });
}

terminal.loadAddon(fit);
terminal.loadAddon(new WebLinksAddon());
terminal.loadAddon(new Unicode11Addon());
terminal.unicode.activeVersion = "11";
terminal.open(screen);
fit.fit();
wire();
wireButtons();
connection.open();
terminal.focus();
