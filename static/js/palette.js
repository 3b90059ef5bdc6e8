// The command palette: Ctrl-K, on a Mac Command-K, opens it; what is typed filters its own links here, and the server
// finds the rest. The focus stays in the field: arrows move the selection, Enter follows it (ARIA's combobox).
import { isPaletteKey } from "#key-actions";
import { hasAllWords, holds, isOfInputMethod, nextIndex, selectedOf } from "#palette-choice";

const link = document.getElementById("palette-link");
const isMac = /^(Mac|iP)/.test(navigator.platform);
const field = () => document.querySelector("[data-palette] input");
const listbox = () => document.getElementById("palette-options");
const found = () => document.getElementById("palette-found");
const options = () => [...listbox().querySelectorAll("[role=option]")].filter((option) => !option.hidden);
const selected = () => listbox().querySelector("[aria-selected=true]");
let answered = ""; // what was typed when the server found what is shown
let isChosen = false; // the selection, by an arrow

function select(option) {
  selected()?.setAttribute("aria-selected", "false");
  option?.setAttribute("aria-selected", "true");
  option?.scrollIntoView({ block: "nearest" });
  if (option) field().setAttribute("aria-activedescendant", option.id);
  else field().removeAttribute("aria-activedescendant");
}

// Shows what fits the text, and selects the first of it, or what was chosen of it.
function update() {
  const { value } = field();
  for (const option of listbox().querySelectorAll("[data-words]")) option.hidden = !hasAllWords(option.textContent, value);
  for (const option of found().querySelectorAll("[role=option]")) option.hidden = value !== answered && !holds(option.textContent, value);
  for (const group of listbox().querySelectorAll("[role=group]")) group.hidden = !group.querySelector("[role=option]:not([hidden])");
  const shown = options();
  for (const option of shown) option.tabIndex = -1;
  document.querySelector("[data-palette-none]").hidden = shown.length > 0 || value !== answered;
  select(selectedOf(shown, selected(), { isChosen }));
}

// The palette itself was settled, or what was found; other parts of the page settle at any time.
function onSettle({ target, requestConfig }) {
  if (!field()) return;
  if (target?.contains(field())) begin();
  if (target !== found()) return;
  answered = requestConfig.parameters.q;
  update();
}

function begin() {
  answered = field().defaultValue;
  isChosen = false;
  update();
}

function move(step) {
  const shown = options();
  isChosen = true;
  select(shown[nextIndex(shown.indexOf(selected()), step, shown.length)]);
}

function onFieldKey(event) {
  if (isOfInputMethod(event)) return; // Enter and arrows belong to the input method
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) {
    event.preventDefault();
    move(step);
  } else if (event.key === "Enter") {
    event.preventDefault();
    selected()?.click();
  }
}

// The pages name the key of other systems.
function nameMacKey() {
  for (const key of document.querySelectorAll("[data-palette-key]")) key.textContent = "⌘ K";
  link.ariaLabel = link.ariaLabel.replace("Ctrl", "⌘");
  link.setAttribute("aria-keyshortcuts", "Meta+K");
}

if (link) {
  document.addEventListener("keydown", (event) => {
    if (event.target === field()) onFieldKey(event);
    if (!isPaletteKey(event, isMac) || event.target.closest?.(".xterm")) return; // a shell has Ctrl-K of its own
    event.preventDefault();
    if (field()) field().select();
    else if (!event.repeat && !document.querySelector("dialog[open]")) link.click();
  });
  document.addEventListener("input", (event) => {
    if (event.target !== field()) return;
    isChosen = false;
    update();
  });
  document.addEventListener("htmx:afterSettle", (event) => onSettle(event.detail));
  if (field()) begin();
  if (isMac) {
    nameMacKey();
    document.addEventListener("htmx:afterSettle", nameMacKey); // the dialog of keys
  }
}
