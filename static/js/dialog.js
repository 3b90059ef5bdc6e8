// The page's one dialog: opens when htmx has fetched its content, shows the outcome as a toast, returns the focus.
// Scripts ask by it too, with `isConfirmed`.
import { gettext } from "#i18n";

const TOAST_MS = 6000;
const UNDO_MS = 5000; // that the server waits
const dialog = document.getElementById("dialog");
const body = document.getElementById("dialog-body");
let opener = null;

// `undo` is what takes it back, as {url, values}; the focus does not go away with a toast.
function toast(text, level, undo) {
  const element = document.getElementById("toast").content.firstElementChild.cloneNode(true);
  element.classList.add(`toast-${level}`);
  element.querySelector(".toast-body").textContent = text;
  const toasts = document.getElementById("toasts");
  if (undo) {
    const button = element.querySelector("[data-undo]");
    button.setAttribute("hx-post", undo.url);
    button.setAttribute("hx-vals", JSON.stringify(undo.values));
    button.hidden = false;
  }
  if (toasts.contains(document.activeElement)) document.getElementById("content").focus({ preventScroll: true });
  toasts.replaceChildren(element);
  window.htmx.process(element);
  window.tabler.Toast.getOrCreateInstance(element, { autohide: level === "success", delay: undo ? UNDO_MS : TOAST_MS }).show();
}

// Why a request failed with this status, 0 or none if it had no response.
function reasonOf(status) {
  if (!status) return gettext("The platform cannot be reached. Try again.");
  if (status === 503) return gettext("The platform is busy at present. What you typed is still here: try again in a moment.");
  return gettext("The platform answered with an error (%(status)s). Nothing was changed.", { status });
}

function returnFocus() {
  const target = opener?.isConnected ? opener : opener?.id && document.getElementById(opener.id);
  (target || document.getElementById("content")).focus({ preventScroll: true });
  opener = null;
  body.replaceChildren();
}

// Asks in the dialog; resolves to whether `action`, the words of its button, was chosen.
export function isConfirmed(question, action) {
  const content = document.getElementById("question").content.cloneNode(true);
  content.querySelector("h2").textContent = question;
  const button = content.querySelector("[data-confirm]");
  button.textContent = action;
  opener = document.activeElement;
  body.replaceChildren(content);
  dialog.showModal();
  return new Promise((resolve) => {
    button.addEventListener("click", () => {
      resolve(true);
      dialog.close();
    });
    dialog.addEventListener("close", () => resolve(false), { once: true });
  });
}

if (dialog) {
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.detail.target === body) opener = event.detail.elt.matches("form") ? document.activeElement : event.detail.elt;
  });
  // Not before it is settled: until then htmx hears nothing that is typed into it.
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.detail.target === body && !dialog.open) dialog.showModal();
  });
  dialog.addEventListener("close", returnFocus);
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close(); // the backdrop
    if (event.target.closest("a[data-dialog-leaves]")) setTimeout(() => dialog.close());
    if (!event.target.closest("[data-dialog-close]")) return;
    event.preventDefault();
    dialog.close();
  });
  // The timeout lets a new window open first.
  dialog.addEventListener("submit", (event) => {
    if (event.target.matches("[data-dialog-leaves]")) setTimeout(() => dialog.close());
  });
  for (const done of ["sessions:ended", "sessions:converting", "sessions:extended", "sessions:renamed", "sessions:resized", "sessions:parked", "folder:done"]) {
    document.addEventListener(done, (event) => {
      if (dialog.open) dialog.close();
      toast(event.detail.message, event.detail.level ?? "success", event.detail.undo);
      if (!event.detail.url) document.dispatchEvent(new CustomEvent("live:changed"));
    });
  }
  for (const failure of ["htmx:sendError", "htmx:responseError", "htmx:timeout"]) {
    document.addEventListener(failure, (event) => {
      if (event.detail.elt.closest("[data-live]") && event.detail.requestConfig?.triggeringEvent?.type === "live:refresh") return;
      const text = reasonOf(event.detail.xhr?.status);
      const place = dialog.open && body.querySelector("[data-dialog-error]");
      if (place) {
        place.textContent = text;
        place.hidden = false;
      } else {
        toast(text, "danger");
      }
    });
  }
}

// A fragment that was redirected is the login page: reload the whole page, which returns here after the login.
document.addEventListener("htmx:beforeSwap", (event) => {
  const { xhr, requestConfig } = event.detail;
  if (!xhr.responseURL || !requestConfig) return;
  const asked = new URL(requestConfig.path, location.href).pathname;
  if (new URL(xhr.responseURL).pathname === asked) return;
  event.detail.shouldSwap = false;
  location.reload();
});
