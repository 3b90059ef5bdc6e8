// What programs in the terminal want to put on the clipboard (OSC 52): copied only after the user has said so, by the button that
// then shows, or by having just dragged over or double-clicked the text, which tmux answers in this way. A hostile output could else plant a command
// that its reader pastes later.
import { gettext } from "#i18n";
import { textFromOsc52 } from "#terminal-clipboard";

const DRAGGED_MS = 1000; // after such a gesture, in which what tmux copies is what was selected
const DRAG_PIXELS = 4;
const PREVIEW = 40; // characters

export class CopyRequest {
  #place;
  #copy;
  #leave;
  #text = "";
  #pressed = null;
  #draggedAt = -Infinity;

  // `place` has [data-words] and the buttons [data-accept] and [data-refuse]; `copy(text)` copies, `leave()` takes the focus back.
  constructor(place, copy, leave) {
    this.#place = place;
    this.#copy = copy;
    this.#leave = leave;
    place.querySelector("[data-accept]").addEventListener("click", () => this.#answer(true));
    place.querySelector("[data-refuse]").addEventListener("click", () => this.#answer(false));
  }

  // Takes part in the gestures of `screen`.
  watch(screen) {
    screen.addEventListener("mousedown", (event) => (this.#pressed = event.isTrusted ? event : null), true);
    addEventListener("mouseup", (event) => {
      const start = this.#pressed;
      this.#pressed = null;
      if (!start) return;
      const isDrag = Math.hypot(event.clientX - start.clientX, event.clientY - start.clientY) > DRAG_PIXELS;
      if (isDrag || event.detail > 1) this.#draggedAt = performance.now();
    });
  }

  // A program asks, in the words of OSC 52.
  ask(data) {
    const text = textFromOsc52(data);
    if (!text) return;
    if (performance.now() - this.#draggedAt <= DRAGGED_MS) {
      this.#copy(text);
      return;
    }
    this.#text = text;
    const preview = text.length > PREVIEW ? `${text.slice(0, PREVIEW)}…` : text;
    this.#place.querySelector("[data-words]").textContent = gettext("A program wants to copy: %(text)s", { text: preview });
    this.#place.hidden = false;
  }

  async #answer(isAccepted) {
    if (isAccepted) await this.#copy(this.#text);
    this.#text = "";
    this.#place.hidden = true;
    this.#leave();
  }
}
