// Buttons that copy: [data-copy] holds the text, and the button says for a moment that it is copied.
import { copyText } from "terminal-clipboard";

const SHOWN_MS = 1500;

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button || button.dataset.label) return;
  button.dataset.label = button.textContent;
  button.textContent = (await copyText(button.dataset.copy)) ? "Copied" : "Select it and press Ctrl+C";
  setTimeout(() => {
    button.textContent = button.dataset.label;
    delete button.dataset.label;
  }, SHOWN_MS);
});
