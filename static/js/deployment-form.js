// What a runtime or a folder proposes fills the form: where nobody has typed anything else, or where it is asked for.
import { fillFields } from "#filled-fields";

const variants = JSON.parse(document.getElementById("variants").textContent);
const form = document.getElementById("deployment-form");
const chooser = form.elements.variant;
const drafts = document.getElementById("drafts");
let filled = variants[chooser.value] ?? {};

function fillIn(values, replaces) {
  fillFields(form, values, filled, replaces);
  filled = { ...filled, ...values };
}

function fill() {
  fillIn(variants[chooser.value] ?? {}, false);
  filled = variants[chooser.value] ?? {};
}

function useDraft(button, replaces) {
  for (const other of drafts.querySelectorAll("[data-draft]")) other.setAttribute("aria-pressed", other === button);
  fillIn(JSON.parse(button.nextElementSibling.textContent), replaces);
  form.dispatchEvent(new Event("change", { bubbles: true })); // what is said of the form holds of these values
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
