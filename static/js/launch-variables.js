// The dialog of environment variables. The form posts what was saved; what is typed stays in the dialog until then.
import { gettext, ngettext } from "#i18n";
import { changed } from "#launch-form";
import { applied, isEmpty, isIncomplete, isSame, problemsOf, rowsOf } from "#variables-text";

const dialog = document.getElementById("variables-dialog");
const list = document.getElementById("variables-rows");
const posted = document.getElementById("variables");
const leave = document.getElementById("variables-leave");
const template = document.getElementById("variable-row");
let saved = [];

const rowElements = () => [...list.querySelectorAll(".variable-row")];
const typed = () => rowElements().map((row) => ({ name: row.querySelector("[data-name]").value, value: row.querySelector("[data-value]").value }));

function add({ name = "", value = "" } = {}, before = null) {
  const row = template.content.firstElementChild.cloneNode(true);
  row.querySelector("[data-name]").value = name;
  row.querySelector("[data-value]").value = value;
  list.insertBefore(row, before);
  return row;
}

function fill(rows) {
  list.replaceChildren();
  for (const row of rows.length ? rows : [{}]) add(row);
  showProblems(false);
}

function hidden(name, value) {
  const input = document.createElement("input");
  Object.assign(input, { type: "hidden", name, value });
  return input;
}

function apply(rows) {
  saved = rows;
  posted.replaceChildren(...rows.flatMap(({ name, value }) => [hidden("variable", name), hidden("value", value)]));
  const names = rows.map((row) => row.name).join(", ");
  document.getElementById("variables-said").textContent = rows.length
    ? ngettext("%(count)s variable is set: %(names)s", "%(count)s variables are set: %(names)s", rows.length, { names })
    : gettext("None is set.");
}

// Shows what is wrong with the rows, unless they are still being typed, and returns whether nothing is.
function showProblems(isShown) {
  const problems = problemsOf(typed());
  for (const [at, row] of rowElements().entries()) {
    row.querySelector("[data-row-problem]").textContent = isShown ? problems[at] : "";
    row.querySelector("[data-name]").toggleAttribute("aria-invalid", Boolean(isShown && problems[at]));
  }
  return !problems.some(Boolean);
}

function finish() {
  if (!isSame(saved, typed())) {
    apply(applied(typed()));
    changed(posted);
  }
  dialog.close();
}

// Asks before something typed is given up; `proceed` is done if so.
function ask(text, label, proceed) {
  document.getElementById("variables-leave-text").textContent = text;
  const go = leave.querySelector("[data-leave=go]");
  go.textContent = label;
  go.onclick = () => {
    leave.close();
    proceed();
  };
  leave.showModal();
}

function save() {
  if (!showProblems(true)) {
    list.querySelector("[aria-invalid]")?.focus();
    return;
  }
  const left = typed().filter(isIncomplete).length;
  if (!left) {
    finish();
    return;
  }
  const text = ngettext(
    "%(count)s row lacks its name or its value and is not applied.",
    "%(count)s rows lack their name or their value and are not applied.",
    left,
  );
  ask(text, gettext("Save the others"), finish);
}

function close() {
  const rows = typed();
  if (isSame(saved, rows) && !rows.some(isIncomplete)) {
    dialog.close();
    return;
  }
  ask(gettext("What is not saved is not applied to the session. Nor are rows without a name or a value."), gettext("Close without saving"), () => dialog.close());
}

// Takes pasted lines such as NAME=value apart into rows.
function paste(event) {
  const row = event.target.closest(".variable-row");
  const rows = event.target.matches("[data-name]") ? rowsOf(event.clipboardData.getData("text")) : [];
  if (!rows.length) return;
  event.preventDefault();
  for (const each of rows) add(each, row);
  row.querySelector("[data-name]").focus();
  if (isEmpty({ name: row.querySelector("[data-name]").value, value: row.querySelector("[data-value]").value })) row.remove();
  (list.lastElementChild ?? add()).querySelector("[data-name]").focus();
}

function bindRows() {
  list.addEventListener("paste", paste);
  list.addEventListener("input", () => {
    if (list.querySelector("[aria-invalid]")) showProblems(true);
  });
  list.addEventListener("click", (event) => {
    const row = event.target.closest(".variable-row");
    if (event.target.closest("[data-variable-add]")) add().querySelector("[data-name]").focus();
    if (!event.target.closest("[data-variable-remove]")) return;
    row.remove();
    (list.lastElementChild ?? add()).querySelector("[data-name]").focus();
  });
}

export function bindVariables() {
  const names = [...posted.querySelectorAll("[name=variable]")].map((each) => each.value);
  const values = [...posted.querySelectorAll("[name=value]")].map((each) => each.value);
  apply(names.map((name, at) => ({ name, value: values[at] })).filter((row) => !isEmpty(row)));
  bindRows();
  document.getElementById("variables-open").addEventListener("click", () => {
    fill(saved);
    dialog.showModal();
    list.lastElementChild.querySelector("[data-name]").focus();
  });
  document.getElementById("variables-clear").addEventListener("click", () => {
    fill([]);
    list.querySelector("[data-name]").focus();
  });
  document.getElementById("variables-form").addEventListener("submit", (event) => {
    event.preventDefault();
    save();
  });
  dialog.querySelector("[data-variables-close]").addEventListener("click", close);
  dialog.addEventListener("cancel", (event) => {
    event.preventDefault();
    close();
  });
  leave.querySelector("[data-leave=stay]").addEventListener("click", () => leave.close());
}
