// The page's one dialog: opens when htmx has fetched its content, tells how it ended, gives the focus back.
const TOAST_MS = 6000;
const dialog = document.getElementById("dialog");
const body = document.getElementById("dialog-body");
let opener = null;

function toast(text, level) {
  const list = document.getElementById("toasts");
  const alert = document.createElement("div");
  alert.className = `alert alert-${level} alert-dismissible`;
  alert.textContent = text;
  const close = document.createElement("button");
  close.type = "button";
  close.className = "btn-close";
  close.setAttribute("aria-label", "Dismiss");
  close.addEventListener("click", () => alert.remove());
  alert.append(close);
  list.replaceChildren(alert);
  if (level === "success") setTimeout(() => alert.remove(), TOAST_MS);
}

function giveFocusBack() {
  const target = opener?.isConnected ? opener : opener?.id && document.getElementById(opener.id);
  (target || document.getElementById("content")).focus({ preventScroll: true });
  opener = null;
  body.replaceChildren();
}

if (dialog) {
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.detail.target === body) opener = event.detail.elt.matches("form") ? document.activeElement : event.detail.elt;
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target === body && !dialog.open) dialog.showModal();
  });
  dialog.addEventListener("close", giveFocusBack);
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close(); // the backdrop
    if (event.target.closest("a[data-dialog-leaves]")) setTimeout(() => dialog.close());
    if (!event.target.closest("[data-dialog-close]")) return;
    event.preventDefault();
    dialog.close();
  });
  // What opens in another window is on its way by then.
  dialog.addEventListener("submit", (event) => {
    if (event.target.matches("[data-dialog-leaves]")) setTimeout(() => dialog.close());
  });
  document.addEventListener("sessions:ended", (event) => {
    if (dialog.open) dialog.close();
    toast(event.detail.message, "success");
    document.dispatchEvent(new CustomEvent("live:changed"));
  });
  for (const failure of ["htmx:sendError", "htmx:responseError", "htmx:timeout"]) {
    document.addEventListener(failure, (event) => {
      if (event.detail.elt.closest("[data-live]") && event.detail.requestConfig?.triggeringEvent?.type === "live:refresh") return;
      const status = event.detail.xhr?.status;
      const text = status ? `The platform answered with an error (${status}). Nothing was changed.` : "The platform cannot be reached. Try again.";
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

// A fragment that was redirected met the sign-in page: load the page itself, which comes back here afterwards.
document.addEventListener("htmx:beforeSwap", (event) => {
  const { xhr, requestConfig } = event.detail;
  if (!xhr.responseURL || !requestConfig) return;
  const asked = new URL(requestConfig.path, location.href).pathname;
  if (new URL(xhr.responseURL).pathname === asked) return;
  event.detail.shouldSwap = false;
  location.reload();
});
