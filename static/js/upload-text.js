// What the upload panel says: sizes, speed, and how long it still takes. No page here.
import { write } from "#amounts";
import { gettext, ngettext } from "#i18n";
import { State } from "#upload-queue";

const SPAN_MS = 8000; // speed is the mean over this

// The speed of an upload from the bytes that have been sent at moments (milliseconds).
export class Speed {
  #samples = [];

  add(sent, now) {
    const last = this.#samples.at(-1);
    if (last && sent < last.sent) this.#samples = []; // another set of files
    this.#samples.push({ sent, now });
    while (this.#samples.length > 2 && now - this.#samples[0].now > SPAN_MS) this.#samples.shift();
  }

  // Bytes a second; 0 while too little is known.
  get bytesPerSecond() {
    const [first, last] = [this.#samples[0], this.#samples.at(-1)];
    const seconds = first ? (last.now - first.now) / 1000 : 0;
    return seconds >= 1 ? (last.sent - first.sent) / seconds : 0;
  }
}

export function spanText(seconds) {
  if (seconds < 60) return gettext("less than a minute left");
  const minutes = Math.ceil(seconds / 60);
  if (minutes < 60) return gettext("%(minutes)s min left", { minutes });
  return gettext("%(hours)s h %(minutes)s min left", { hours: Math.floor(minutes / 60), minutes: minutes % 60 });
}

// The heading of the panel.
export function headline({ files, done, failed }, isActive) {
  if (isActive) return ngettext("Uploading %(number)s of %(count)s file", "Uploading %(number)s of %(count)s files", files, { number: Math.min(done + 1, files) });
  if (!files) return gettext("Nothing uploaded");
  if (failed) return ngettext("%(done)s of %(count)s file uploaded, %(failed)s failed", "%(done)s of %(count)s files uploaded, %(failed)s failed", files, { done, failed });
  return ngettext("%(count)s file uploaded", "%(count)s files uploaded", files);
}

// The line below it: how much, how quickly, how long.
export function progressLine({ bytes, sent }, bytesPerSecond) {
  const parts = [gettext("%(sent)s of %(total)s", { sent: write.size(sent), total: write.size(bytes) })];
  if (bytesPerSecond > 0) {
    parts.push(`${write.size(bytesPerSecond)}/s`);
    if (bytes > sent) parts.push(spanText((bytes - sent) / bytesPerSecond));
  }
  return parts.join(" · ");
}

const STATE_WORDS = {
  [State.WAITING]: () => gettext("waiting"),
  [State.SENDING]: (item) => `${percent(item)} %`,
  [State.PAUSED]: (item) => gettext("paused at %(percent)s %%", { percent: percent(item) }),
  [State.OFFLINE]: () => gettext("connection lost, trying again"),
  [State.CONFLICT]: () => gettext("the name exists already"),
  [State.DONE]: () => gettext("uploaded"),
  [State.FAILED]: (item) => item.problem,
  [State.SKIPPED]: () => gettext("skipped"),
  [State.CANCELLED]: () => gettext("cancelled"),
};

export function percent({ sent, size }) {
  return size ? Math.floor((100 * sent) / size) : 0;
}

export function stateText(item) {
  return STATE_WORDS[item.state](item);
}

// Of many uploads, those worth a row: questions and failures first, then what moves, what waits, and what is done.
const ORDER = [State.CONFLICT, State.FAILED, State.OFFLINE, State.SENDING, State.PAUSED, State.WAITING, State.DONE, State.SKIPPED, State.CANCELLED];

export function shownItems(items, limit) {
  const chosen = new Set([...items].sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state)).slice(0, limit));
  return items.filter((item) => chosen.has(item)); // in the order in which they were added, so that rows stay in place
}
