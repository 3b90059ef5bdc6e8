// The editor of a text file: says what is unsaved, saves with Ctrl+S, and never over what somebody else has saved.
import { gettext, locale } from "#i18n";

const CONFLICT = 412;

// The parts of the editor that is shown now, or null.
function current() {
  const form = document.querySelector("[data-editor]");
  if (!form) return null;
  const part = (name) => form.querySelector(`[data-editor-${name}]`);
  return { form, part, text: document.getElementById("editor-text") };
}

function say(editor, text) {
  editor.part("state").textContent = text;
}

function showProblem(editor, text) {
  const place = editor.part("problem");
  place.textContent = text;
  place.hidden = !text;
}

function onInput(editor) {
  editor.form.dataset.unsaved = "";
  say(editor, gettext("Not saved yet"));
}

async function answerOf(response) {
  if (response.redirected || !(response.headers.get("Content-Type") ?? "").includes("json")) {
    const isOver = response.redirected || response.status === 403;
    return { detail: isOver ? gettext("You are signed out. Sign in again in another tab, then save.") : gettext("The platform answered with an error (%(status)s).", { status: response.status }) };
  }
  return response.json();
}

// Sends the text with the tag of what was read, so that the server refuses if the file has changed since.
async function save(editor, etag = editor.form.dataset.etag) {
  const { form, text, part } = editor;
  if (form.dataset.saving !== undefined) return;
  form.dataset.saving = "";
  const value = text.value;
  say(editor, gettext("Saving…"));
  const headers = { "Content-Type": "text/plain; charset=utf-8", "If-Match": etag, "X-CSRFToken": form.elements.csrfmiddlewaretoken.value };
  if ("crlf" in form.dataset) headers["X-Line-Ends"] = "crlf";
  try {
    const response = await fetch(location.href, { method: "PUT", headers, body: value });
    const answer = await answerOf(response);
    part("conflict").hidden = response.status !== CONFLICT;
    showProblem(editor, response.ok || response.status === CONFLICT ? "" : answer.detail);
    if (answer.etag) part("conflict").dataset.etag = answer.etag;
    if (response.ok && answer.etag) {
      form.dataset.etag = answer.etag;
      form.elements.etag.value = answer.etag;
      if (text.value === value) delete form.dataset.unsaved; // nothing was typed meanwhile
    }
  } catch {
    showProblem(editor, gettext("The platform cannot be reached. Your text is still here; try again."));
  }
  delete form.dataset.saving;
  say(editor, "unsaved" in form.dataset ? gettext("Not saved yet") : gettext("Saved at %(time)s", { time: new Date().toLocaleTimeString(locale) }));
}

function onClick(event) {
  const editor = current();
  if (!editor) return;
  if (event.target.closest("[data-editor-overwrite]")) save(editor, editor.part("conflict").dataset.etag || "*");
  if (event.target.closest("[data-editor-reload]")) {
    delete editor.form.dataset.unsaved;
    location.reload();
  }
}

function indent(event) {
  event.preventDefault();
  event.target.setRangeText("    ", event.target.selectionStart, event.target.selectionEnd, "end");
  event.target.dispatchEvent(new Event("input", { bubbles: true }));
}

document.addEventListener("input", (event) => {
  if (event.target.id === "editor-text") onInput(current());
});
document.addEventListener("submit", (event) => {
  if (!event.target.matches("[data-editor]")) return;
  event.preventDefault();
  save(current());
});
document.addEventListener("click", onClick);
let isEscaped = false; // Escape lets the next Tab leave the text, as keyboard users need
document.addEventListener("keydown", (event) => {
  const editor = current();
  if (!editor) return;
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "s") {
    event.preventDefault();
    save(editor);
  } else if (event.target === editor.text && event.key === "Tab" && !event.shiftKey && !isEscaped) {
    indent(event);
  }
  isEscaped = event.key === "Escape";
});
