// The keys of the pages with the navigation: n launches, z undoes, / searches, ? shows them. The dialog can turn them off.
import { actionOf } from "#key-actions";

const KEY = "gpuplatform.keys";
const SEARCH_HASH = "#search";
const link = document.getElementById("keys-link");

function areOn() {
  try {
    return localStorage.getItem(KEY) !== "off";
  } catch {
    return true; // storage may be switched off
  }
}

function remember(isOn) {
  try {
    localStorage.setItem(KEY, isOn ? "on" : "off");
  } catch {
    // Then the choice lasts as long as the page.
  }
}

function searchField() {
  return [...document.querySelectorAll("main input[type=search]")].find((field) => field.checkVisibility());
}

function search() {
  const field = searchField();
  if (!field) location.assign(link.dataset.search);
  else {
    field.focus();
    field.select();
  }
}

// What was done last is in a message; rows may be those of others.
function undo() {
  const buttons = ["#toasts [data-undo]", "[data-undo]"].flatMap((each) => [...document.querySelectorAll(each)]);
  buttons.find((button) => button.checkVisibility())?.click();
}

const ACTIONS = {
  launch: () => location.assign(link.dataset.launch),
  undo,
  search,
  keys: () => link.click(),
};

if (link) {
  document.addEventListener("keydown", (event) => {
    const { target } = event;
    const focus = { tag: target.tagName, type: target.type, isEditable: target.isContentEditable };
    const action = areOn() && actionOf(event, focus, { isDialogOpen: Boolean(document.querySelector("dialog[open]")) });
    if (!action) return;
    event.preventDefault();
    ACTIONS[action]();
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-keys-switch]")) remember(event.target.checked);
  });
  const showChoice = () => document.querySelectorAll("[data-keys-switch]").forEach((box) => (box.checked = areOn()));
  showChoice();
  document.addEventListener("htmx:afterSwap", showChoice);
  if (location.hash === SEARCH_HASH) searchField()?.focus();
}
