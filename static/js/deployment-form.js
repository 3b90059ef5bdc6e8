// What a runtime or a folder proposes fills the form: where nobody has typed anything else, or where it is asked for.
const variants = JSON.parse(document.getElementById("variants").textContent);
const form = document.getElementById("deployment-form");
const chooser = form.elements.variant;
const drafts = document.getElementById("drafts");
let filled = variants[chooser.value] ?? {};

function initialOf(field) {
  if (field.tagName !== "SELECT") return field.type === "checkbox" ? field.defaultChecked : field.defaultValue;
  return [...field.options].find((option) => option.defaultSelected)?.value ?? field.options[0]?.value;
}

function fillIn(values, replaces) {
  for (const [name, value] of Object.entries(values)) {
    const field = form.elements[name];
    if (!field) continue; // a form of a revision has no name
    const property = field.type === "checkbox" ? "checked" : "value";
    const present = field[property];
    const untouched = present === "" || present === (filled[name] ?? initialOf(field));
    if (replaces || untouched) field[property] = value ?? "";
  }
  filled = { ...filled, ...values };
}

function fill() {
  fillIn(variants[chooser.value] ?? {}, false);
  filled = variants[chooser.value] ?? {};
}

function useDraft(button, replaces) {
  for (const other of drafts.querySelectorAll("[data-draft]")) other.setAttribute("aria-pressed", other === button);
  fillIn(JSON.parse(button.nextElementSibling.textContent), replaces);
}

chooser.addEventListener("change", fill);
if (chooser.value && form.elements.command.value === "") fill();

drafts.addEventListener("click", (event) => {
  const button = event.target.closest("[data-draft]");
  if (button) useDraft(button, true);
});
document.addEventListener("htmx:afterSwap", (event) => {
  if (event.target !== drafts) return;
  const buttons = drafts.querySelectorAll("[data-draft]");
  if (buttons.length === 1) useDraft(buttons[0], event.detail.requestConfig.triggeringEvent?.type === "click");
});
