// Tells within three seconds that the other end of a connection is silent, by asking it once a second. No page here.
const TICK_MS = 250;
const ASK_MS = 1000; // of silence, after which the other end is asked; as long between two questions
const SILENT_MS = 2500; // of silence, after which what is shown may be out of date
const DEAD_MS = 6000; // of silence, after which the connection is given up
const RESUMED_MS = 1250; // how soon after a pause the other end must answer

export class Heartbeat {
  #ask;
  #silent;
  #alive;
  #dead;
  #now;
  #asksAlways;
  #timer = null;
  #isPaused = false;
  #isSilent = false;
  #since = 0; // when the silence began that counts
  #asked = 0;
  #ticked = 0;

  // ask() sends a question, whose answer is to call `heard`, as all else that arrives; silent(), alive() and dead() are told
  // when the state changes. `now` returns milliseconds. Unless `asksAlways`, what arrives by itself spares the question.
  constructor({ ask, silent, alive, dead }, now = () => performance.now(), { asksAlways = false } = {}) {
    this.#ask = ask;
    this.#silent = silent;
    this.#alive = alive;
    this.#dead = dead;
    this.#now = now;
    this.#asksAlways = asksAlways;
  }

  // The connection is open.
  start() {
    this.stop();
    this.#isSilent = false;
    this.#since = this.#asked = this.#ticked = this.#now();
    this.#timer = setInterval(() => this.tick(), TICK_MS);
  }

  // The connection is closed.
  stop() {
    clearInterval(this.#timer);
    this.#timer = null;
  }

  // Something has arrived.
  heard() {
    this.#since = this.#now();
    if (!this.#isSilent) return;
    this.#isSilent = false;
    this.#alive();
  }

  get isSilent() {
    return this.#isSilent;
  }

  // Nobody looks, so silence does not matter, until `resume`.
  pause() {
    this.#isPaused = true;
  }

  resume() {
    this.#isPaused = false;
    this.check();
  }

  // Ask now: something may have changed while nobody looked.
  check() {
    if (!this.#timer) return;
    this.#since = Math.max(this.#since, this.#now() - SILENT_MS + RESUMED_MS);
    this.#question();
  }

  // The silence is known to matter from now on, such as when the browser reports that it has no network.
  expectNothing() {
    if (this.#timer && !this.#isSilent) this.#fallSilent();
  }

  tick() {
    if (!this.#timer) return;
    const now = this.#now();
    const wasHeldUp = now - this.#ticked > 4 * TICK_MS; // by a busy page or a sleeping computer
    this.#ticked = now;
    if (this.#isPaused) return;
    if (wasHeldUp) {
      this.check();
      return;
    }
    const silence = now - this.#since;
    if (silence >= DEAD_MS) {
      this.stop();
      this.#dead();
      return;
    }
    if (silence >= SILENT_MS && !this.#isSilent) this.#fallSilent();
    if ((this.#asksAlways || silence >= ASK_MS) && now - this.#asked >= ASK_MS) this.#question();
  }

  #question() {
    this.#asked = this.#now();
    this.#ask();
  }

  #fallSilent() {
    this.#isSilent = true;
    this.#silent();
  }
}
