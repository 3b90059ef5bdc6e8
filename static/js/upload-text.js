// What the upload panel says: sizes, speed, and how long it still takes. No page here.
import { MIB, write } from "#amounts";
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

export function sizeText(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  return bytes < MIB ? `${Math.round(bytes / 102.4) / 10} KiB` : write.size(bytes);
}

export function spanText(seconds) {
  if (seconds < 60) return "less than a minute left";
  const minutes = Math.ceil(seconds / 60);
  if (minutes < 60) return `${minutes} min left`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min left`;
}

const ofFiles = (count) => `${count} ${count === 1 ? "file" : "files"}`;

// The heading of the panel.
export function headline({ files, done, failed }, isActive) {
  if (isActive) return `Uploading ${done + 1 > files ? files : done + 1} of ${ofFiles(files)}`;
  if (!files) return "Nothing uploaded";
  if (failed) return `${done} of ${ofFiles(files)} uploaded, ${failed} failed`;
  return `${ofFiles(files)} uploaded`;
}

// The line below it: how much, how quickly, how long.
export function progressLine({ bytes, sent }, bytesPerSecond) {
  const parts = [`${sizeText(sent)} of ${sizeText(bytes)}`];
  if (bytesPerSecond > 0) {
    parts.push(`${sizeText(Math.round(bytesPerSecond))}/s`);
    if (bytes > sent) parts.push(spanText((bytes - sent) / bytesPerSecond));
  }
  return parts.join(" · ");
}

const STATE_WORDS = {
  [State.WAITING]: () => "waiting",
  [State.SENDING]: (item) => `${percent(item)} %`,
  [State.PAUSED]: (item) => `paused at ${percent(item)} %`,
  [State.OFFLINE]: () => "connection lost, trying again",
  [State.CONFLICT]: () => "the name exists already",
  [State.DONE]: () => "uploaded",
  [State.FAILED]: (item) => item.problem,
  [State.SKIPPED]: () => "skipped",
  [State.CANCELLED]: () => "cancelled",
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
