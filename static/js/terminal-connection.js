// The websocket of one terminal: bytes and flow control both ways, and reconnection.
// Binary frames are the terminal's bytes. Text frames are JSON: {"resize": [columns, rows]}, {"ack": bytes}, {"ping": number},
// answered by {"pong": number}, and {"seen": number} before the first input after that answer: the server takes no input that
// was typed long after the last answer that its user's browser saw.
import { Backoff } from "#backoff";
import { Heartbeat } from "#heartbeat";

const FRAME = 16 * 1024; // bytes of input in one frame
const INPUT_WINDOW = 64 * 1024; // bytes of input sent and not yet confirmed; the server bears eight times that
const ACK_EVERY = 64 * 1024; // bytes drawn between two confirmations
const OPEN_MS = 20_000; // in which a handshake is over, or never will be
const START_MS = 30_000; // in which the shell is started, or the server says why not; until then it answers nothing
const FRESH_MS = 2000; // after an answer, in which input is sent without asking first
const HELD_MS = 6000; // for which input waits for an answer, as behind much output; then it is dropped, and its user told

// The server's close codes (sessions/terminal/messages.py). Any other, such as 4502 or a lost network, is retried.
export const Code = { exited: 1000, broken: 1008, signedOut: 4401, notFound: 4404, ended: 4410 };
const FINAL = new Set(Object.values(Code));

export class Connection {
  #handlers;
  #url;
  #now;
  #socket = null;
  #waiting = []; // input frames for which there is no room yet
  #held = []; // input for which nobody has answered yet
  #underWay = 0; // bytes of input not yet confirmed
  #drawn = 0; // bytes of output not yet confirmed
  #backoff = new Backoff(500, 10_000);
  #retry = null;
  #opening = null;
  #holding = null;
  #asked = 0; // number of the last question
  #answered = 0; // number of the last answer
  #told = 0; // number of the last answer that the server knows of
  #answeredAt = 0;
  #heartbeat;

  // handlers: connecting(), opened(), output(bytes), silent(), alive(), unsent(), told(message), lost(words), ended(code, words)
  constructor(url, handlers, now = () => performance.now()) {
    this.#url = url;
    this.#handlers = handlers;
    this.#now = now;
    const beats = {
      ask: () => this.#tell({ ping: ++this.#asked }),
      silent: () => this.#fellSilent(),
      alive: () => this.#handlers.alive(),
      dead: () => this.drop(),
    };
    this.#heartbeat = new Heartbeat(beats, now, { asksAlways: true });
  }

  open() {
    clearTimeout(this.#retry);
    this.#retry = null;
    this.#handlers.connecting();
    const socket = new WebSocket(this.#url);
    socket.binaryType = "arraybuffer";
    this.#socket = socket;
    this.#waiting = [];
    this.#underWay = this.#drawn = this.#asked = this.#answered = this.#told = 0;
    let isFirst = true;
    let isAnswered = false;
    clearTimeout(this.#opening);
    this.#opening = setTimeout(() => this.drop(), OPEN_MS);
    socket.onopen = () => {
      clearTimeout(this.#opening);
      this.#opening = setTimeout(() => this.drop(), START_MS);
      this.#answeredAt = this.#now();
      this.#tell({ ping: ++this.#asked });
      this.#handlers.opened();
    };
    socket.onmessage = (event) => {
      if (!isAnswered) {
        isAnswered = true;
        clearTimeout(this.#opening);
        this.#heartbeat.start();
      }
      this.#heartbeat.heard();
      if (typeof event.data === "string") {
        this.#control(JSON.parse(event.data));
        return;
      }
      if (isFirst) this.#backoff.reset(); // only a shell that speaks is a success
      isFirst = false;
      this.#handlers.output(new Uint8Array(event.data));
    };
    socket.onclose = (event) => this.#closed(event.code, event.reason);
  }

  get isOpen() {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  // What is typed into the void must not surprise the next shell: it is sent soon after an answer, or not at all.
  send(bytes) {
    if (!this.isOpen || this.#heartbeat.isSilent) {
      this.#handlers.unsent();
      return;
    }
    if (this.#now() - this.#answeredAt <= FRESH_MS && !this.#held.length) {
      this.#enqueue(bytes);
      return;
    }
    this.#held.push(bytes);
    if (this.#holding) return;
    this.#heartbeat.check();
    this.#holding = setTimeout(() => this.#dropHeld(), HELD_MS);
  }

  resize(columns, rows) {
    this.#tell({ resize: [columns, rows] });
  }

  // `count` bytes of output are on the screen.
  drawn(count) {
    this.#drawn += count;
    if (this.#drawn < ACK_EVERY) return;
    this.#tell({ ack: this.#drawn });
    this.#drawn = 0;
  }

  // The network may have failed, or come back, unnoticed.
  check() {
    if (this.isOpen) this.#heartbeat.check();
    else if (this.#retry) this.open();
  }

  // The browser reports that it has no network.
  wentOffline() {
    this.#heartbeat.expectNothing();
  }

  pause() {
    this.#heartbeat.pause();
  }

  resume() {
    this.#heartbeat.resume();
    this.check();
  }

  drop() {
    this.#abandon();
    this.#closed(1006, "");
  }

  // Connect at once, whatever the present connection is worth.
  reconnect() {
    this.#abandon();
    this.#dropHeld();
    this.open();
  }

  #abandon() {
    clearTimeout(this.#retry);
    clearTimeout(this.#opening);
    this.#heartbeat.stop();
    const socket = this.#socket;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
  }

  #tell(message) {
    if (this.isOpen) this.#socket.send(JSON.stringify(message));
  }

  #control(message) {
    if (message.pong) this.#wasAnswered(message.pong);
    else if (message.ack) {
      this.#underWay -= message.ack;
      this.#flush();
    } else this.#handlers.told(message);
  }

  #wasAnswered(number) {
    this.#answered = number;
    this.#answeredAt = this.#now();
    clearTimeout(this.#holding);
    this.#holding = null;
    for (const bytes of this.#held.splice(0)) this.#enqueue(bytes);
  }

  #enqueue(bytes) {
    for (let start = 0; start < bytes.length; start += FRAME) this.#waiting.push(bytes.subarray(start, start + FRAME));
    this.#flush();
  }

  #flush() {
    while (this.#waiting.length && this.#underWay < INPUT_WINDOW) {
      if (this.#told !== this.#answered) this.#tell({ seen: (this.#told = this.#answered) });
      const frame = this.#waiting.shift();
      this.#underWay += frame.length;
      this.#socket.send(frame);
    }
  }

  #fellSilent() {
    this.#dropHeld();
    this.#handlers.silent();
  }

  // Give up input that was not sent.
  #dropHeld() {
    clearTimeout(this.#holding);
    this.#holding = null;
    if (this.#held.splice(0).length) this.#handlers.unsent();
  }

  #closed(code, words) {
    clearTimeout(this.#opening);
    this.#heartbeat.stop();
    this.#dropHeld();
    if (FINAL.has(code)) {
      this.#handlers.ended(code, words);
      return;
    }
    this.#retry = setTimeout(() => this.open(), this.#backoff.next());
    this.#handlers.lost(words);
  }
}
