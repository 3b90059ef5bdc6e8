// The launcher opens by itself, once, in the tab that launched a session, as soon as the session runs.
const KEY = "gpuplatform.launched";
const dialog = document.getElementById("dialog");

function remember() {
  const launched = new URLSearchParams(location.hash.slice(1)).get("launched");
  if (!launched) return;
  sessionStorage.setItem(KEY, launched);
  history.replaceState(history.state, "", location.pathname + location.search);
}

function openIfRunning() {
  const launched = sessionStorage.getItem(KEY)?.split(",") ?? [];
  const link = launched.map((id) => document.getElementById(`apps-${id}`)).find(Boolean); // only running ones have it
  if (!link || dialog.open) return;
  sessionStorage.removeItem(KEY);
  link.click();
}

remember();
document.addEventListener("htmx:afterSettle", openIfRunning);
dialog.addEventListener("close", openIfRunning);
addEventListener("load", openIfRunning); // htmx has wired the link by then
