// Buttons that copy: [data-copy] holds the text, and the button says for a moment that it is copied.
import { copyText } from "#terminal-clipboard";

const SHOWN_MS = 1500;
const telling = new WeakSet(); // not a mark on the button: a live update takes marks away

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button || telling.has(button)) return;
  telling.add(button);
  const label = button.textContent;
  button.textContent = (await copyText(button.dataset.copy)) ? "Copied" : "Select it and press Ctrl+C";
  setTimeout(() => {
    button.textContent = label;
    telling.delete(button);
  }, SHOWN_MS);
});
