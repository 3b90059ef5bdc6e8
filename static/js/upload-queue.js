// A queue of uploads: a few at a time, with pauses, questions about names that exist, and totals. No page and no network
// here: `send(item, events)` starts one and returns { pause(), resume(), cancel() }.
export const State = Object.freeze({
  WAITING: "waiting",
  SENDING: "sending",
  PAUSED: "paused",
  OFFLINE: "offline", // tried again by itself
  CONFLICT: "conflict", // the name exists: replace, keep both or skip?
  DONE: "done",
  FAILED: "failed",
  SKIPPED: "skipped",
  CANCELLED: "cancelled",
});

const ENDED = new Set([State.DONE, State.FAILED, State.SKIPPED, State.CANCELLED]);
const STARTED = new Set([State.SENDING, State.OFFLINE]); // these hold a place

export class UploadQueue {
  #items = [];
  #send;
  #limit;
  #changed;
  #answer = ""; // to all further conflicts
  #nextId = 1;

  // At most `limit` are sent at once; `changed(item)` is called after each change of an item.
  constructor(send, { limit = 3, changed = () => {} } = {}) {
    this.#send = send;
    this.#limit = limit;
    this.#changed = changed;
  }

  get items() {
    return this.#items;
  }

  get isActive() {
    return this.#items.some((item) => !ENDED.has(item.state));
  }

  // Adds files, each { file, path, size, folder ... }; what else is given is passed on to `send`.
  add(files) {
    if (!this.isActive) this.#answer = "";
    for (const file of files) {
      this.#items.push({ conflict: "refuse", ...file, id: this.#nextId++, sent: 0, state: State.WAITING, problem: "", transfer: null });
    }
    this.#fill();
  }

  find(id) {
    return this.#items.find((item) => item.id === id);
  }

  pause(item) {
    if (item.state === State.WAITING) this.#set(item, State.PAUSED);
    if (!STARTED.has(item.state)) return;
    item.transfer.pause();
    this.#set(item, State.PAUSED);
    this.#fill();
  }

  resume(item) {
    if (item.state !== State.PAUSED && item.state !== State.FAILED) return;
    item.problem = "";
    this.#set(item, State.WAITING);
    this.#fill();
  }

  cancel(item) {
    if (ENDED.has(item.state) && item.state !== State.FAILED) return;
    item.transfer?.cancel();
    this.#set(item, State.CANCELLED);
    this.#fill();
  }

  pauseAll() {
    for (const item of this.#items) this.pause(item);
  }

  resumeAll() {
    for (const item of this.#items) if (item.state === State.PAUSED) this.resume(item);
  }

  cancelAll() {
    for (const item of this.#items) if (item.state !== State.FAILED) this.cancel(item);
  }

  // Answers the question of an item whose name exists: "replace", "keep-both" or "skip".
  answer(item, choice, { forAll = false } = {}) {
    if (forAll) this.#answer = choice;
    for (const each of forAll ? this.#items : [item]) {
      if (each.state === State.CONFLICT) this.#resolve(each, choice);
    }
    this.#fill();
  }

  // Forgets what has ended.
  clear() {
    this.#items = this.#items.filter((item) => !ENDED.has(item.state));
  }

  get totals() {
    const totals = { files: 0, done: 0, failed: 0, bytes: 0, sent: 0 };
    for (const item of this.#items) {
      if (item.state === State.CANCELLED || item.state === State.SKIPPED) continue;
      totals.files += 1;
      totals.done += item.state === State.DONE;
      totals.failed += item.state === State.FAILED;
      totals.bytes += item.size;
      totals.sent += item.sent;
    }
    return totals;
  }

  #resolve(item, choice) {
    item.conflict = choice;
    this.#set(item, choice === "skip" ? State.SKIPPED : State.WAITING);
  }

  #fill() {
    let free = this.#limit - this.#items.filter((item) => STARTED.has(item.state)).length;
    for (const item of this.#items) {
      if (free <= 0) return;
      if (item.state !== State.WAITING) continue;
      free -= 1;
      this.#start(item);
    }
  }

  #start(item) {
    this.#set(item, State.SENDING);
    if (item.transfer) {
      item.transfer.resume();
      return;
    }
    const live = () => STARTED.has(item.state);
    item.transfer = this.#send(item, {
      progress: (sent) => {
        if (!live()) return;
        item.sent = sent;
        this.#set(item, State.SENDING);
      },
      offline: () => live() && this.#set(item, State.OFFLINE),
      done: () => {
        item.sent = item.size;
        this.#end(item, State.DONE);
      },
      conflict: () => this.#onConflict(item),
      failed: (problem) => {
        item.problem = problem;
        this.#end(item, State.FAILED);
      },
    });
  }

  #onConflict(item) {
    item.transfer = null; // asked anew with the answer
    item.sent = 0;
    if (this.#answer) this.#resolve(item, this.#answer);
    else this.#set(item, State.CONFLICT);
    this.#fill();
  }

  #end(item, state) {
    if (item.state === State.CANCELLED) return;
    this.#set(item, state);
    this.#fill();
  }

  #set(item, state) {
    item.state = state;
    this.#changed(item);
  }
}
