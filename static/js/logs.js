// The log panel: keeps to the end while its reader is at the end, and fetches again every two seconds on "Follow".
const FOLLOW_MS = 2000;
const panel = document.getElementById("log-text");
const follow = document.getElementById("log-follow");
const button = document.getElementById("log-refresh");
let atEnd = true;

function toEnd() {
  panel.scrollTop = panel.scrollHeight;
}

function again() {
  if (follow.checked && !document.hidden && !window.getSelection().containsNode(panel, true)) {
    window.htmx.trigger(button, "click");
  }
}

toEnd();
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target === panel) atEnd = panel.scrollHeight - panel.scrollTop - panel.clientHeight < 24;
});
document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target === panel && atEnd) toEnd();
  if (event.detail.target.id === "live") window.htmx.trigger(button, "click"); // its last words come with its end
});
follow.addEventListener("change", () => {
  if (follow.checked) toEnd();
  again();
});
setInterval(again, FOLLOW_MS);
