// Buttons that copy: [data-copy] holds the text, and the button says for a moment that it is copied.
import { gettext } from "#i18n";
import { copyText } from "#terminal-clipboard";

const SHOWN_MS = 1500;
const copied = new WeakSet(); // not an attribute of the button: a live update removes attributes

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button || copied.has(button)) return;
  copied.add(button);
  const label = button.textContent;
  button.textContent = (await copyText(button.dataset.copy)) ? gettext("Copied") : gettext("Select it and press Ctrl+C");
  setTimeout(() => {
    button.textContent = label;
    copied.delete(button);
  }, SHOWN_MS);
});
