// The messages of the launch page: at the fields that were typed into, all of them once a launch was tried.
import { form } from "#launch-form";

const summary = document.getElementById("launch-errors");
const touched = new Set();
let problems = {};
let summarized = ""; // what the summary lists
let isAllShown = "showsProblems" in form.dataset;

export const hasProblems = () => Object.keys(problems).length > 0;
const isShown = (name) => isAllShown || touched.has(name);

// Returns the name under which the messages of an input stand.
function nameOf(input) {
  if (input.matches("[data-slider]")) return input.closest("[data-amount]").dataset.amount;
  if (input.closest("#variables")) return "environment";
  const row = input.closest("[data-folder]");
  return row ? `mount-${row.querySelector("[name=mount]").value}` : input.name;
}

// Notes that something was typed into an input, so that what is wrong with it may be said.
export function touch(input) {
  if (input === form) return;
  touched.add(nameOf(input));
  if (input.closest("[data-folder]")) touched.add("mounts");
}

export function pageOf(name) {
  return document.getElementById(`error-${name}`)?.closest("[data-page]")?.dataset.page ?? "review";
}

function goTo(name) {
  form.dispatchEvent(new CustomEvent("launch:go", { detail: { page: pageOf(name) } }));
  const input = form.querySelector(`[aria-describedby~="error-${name}"]`) ?? document.getElementById(`error-${name}`)?.closest("[data-page]")?.querySelector("input, button");
  if (input?.checkVisibility()) input.focus(); // amounts of a preset have hidden fields
}

function summarize() {
  const items = Object.entries(problems).flatMap(([name, texts]) => texts.map((text) => [name, text]));
  if (!items.length) summary.hidden = true;
  const listed = JSON.stringify(items);
  if (listed === summarized) return; // a button that is pressed at this moment, or has the focus, stays
  summarized = listed;
  summary.querySelector("ul").replaceChildren(
    ...items.map(([name, text]) => {
      const item = document.createElement("li");
      const button = document.createElement("button");
      Object.assign(button, { type: "button", className: "btn-bare problem-link", textContent: text });
      button.addEventListener("click", () => goTo(name));
      item.append(button);
      return item;
    }),
  );
}

function show() {
  for (const place of form.querySelectorAll(".field-error[id^=error-]")) {
    const name = place.id.slice("error-".length);
    const text = isShown(name) ? (problems[name] ?? []).join(" ") : "";
    if (place.textContent.trim() !== text) place.textContent = text;
    for (const input of form.querySelectorAll(`[aria-describedby~="${place.id}"]`)) {
      input.classList.toggle("is-invalid", Boolean(text));
      if (text) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
    }
  }
  for (const link of document.querySelectorAll(".launch-steps [data-step-link]")) {
    const isWrong = Object.keys(problems).some((name) => isShown(name) && pageOf(name) === link.dataset.stepLink);
    link.classList.toggle("has-problem", isWrong);
  }
  summarize();
}

// Takes what the server says of the form as it is: {name: [message, ...]}.
export function setProblems(found) {
  problems = found;
  show();
}

// Shows all messages, and leads to the first.
export function showAll() {
  isAllShown = true;
  show();
  summary.hidden = false;
  form.dispatchEvent(new CustomEvent("launch:go", { detail: { page: pageOf(Object.keys(problems)[0]) } }));
  summary.focus();
}

export function bindProblems() {
  if (summary.hidden) return;
  const found = {};
  for (const item of summary.querySelectorAll("[data-problem]")) (found[item.dataset.problem] ??= []).push(item.textContent);
  setProblems(found);
  summary.focus();
}
