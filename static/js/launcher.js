// The launcher opens by itself, once, in the tab that launched a session, as soon as the session runs.
const KEY = "gpuplatform.launched";
const dialog = document.getElementById("dialog");
let isRequested = false; // the dialog's content is on its way

function remember() {
  const launched = new URLSearchParams(location.hash.slice(1)).get("launched");
  if (!launched) return;
  sessionStorage.setItem(KEY, launched);
  history.replaceState(history.state, "", location.pathname + location.search);
}

function linkIds() {
  const launched = sessionStorage.getItem(KEY)?.split(",") ?? [];
  return launched.map((id) => `apps-${id}`);
}

function openIfRunning() {
  if (isRequested || dialog.open) return;
  const link = linkIds().map((id) => document.getElementById(id)).find(Boolean); // only running ones have it
  if (!link) return;
  window.htmx.process(link); // what another swap has just brought waits for that: a click would leave the page
  link.click();
}

function isForDialog(event) {
  return event.detail.target?.id === "dialog-body";
}

remember();
document.addEventListener("htmx:beforeRequest", (event) => {
  if (isForDialog(event)) isRequested = true;
});
document.addEventListener("htmx:afterRequest", (event) => {
  if (isForDialog(event)) isRequested = false;
});
// Forgotten only once the launcher shows, so that a request that came to nothing is made again with the next update.
document.addEventListener("htmx:afterSwap", (event) => {
  if (isForDialog(event) && linkIds().includes(event.detail.requestConfig.elt.id)) sessionStorage.removeItem(KEY);
});
document.addEventListener("htmx:afterSettle", openIfRunning);
dialog.addEventListener("close", openIfRunning);
addEventListener("load", openIfRunning);
