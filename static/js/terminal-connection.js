// The websocket of one terminal: bytes and flow control both ways, and reconnection.
// Binary frames are the terminal's bytes. Text frames are JSON: {"resize": [columns, rows]}, {"ack": bytes}, {"ping": 1}.
import { Backoff } from "#backoff";

const FRAME = 16 * 1024; // bytes of input in one frame
const INPUT_WINDOW = 256 * 1024; // bytes of input sent and not yet confirmed; the server bears twice that
const ACK_EVERY = 64 * 1024; // bytes drawn between two confirmations
const PONG_MS = 5_000;
const OPEN_MS = 20_000; // in which a handshake is over, or never will be

// The server's close codes (sessions/terminal_messages.py). Any other, such as 4502 or a lost network, is retried.
export const Code = { exited: 1000, broken: 1008, signedOut: 4401, notFound: 4404, ended: 4410 };
const FINAL = new Set(Object.values(Code));

export class Connection {
  #handlers;
  #url;
  #socket = null;
  #waiting = []; // input frames for which there is no room yet
  #underWay = 0; // bytes of input not yet confirmed
  #drawn = 0; // bytes of output not yet confirmed
  #backoff = new Backoff(500, 10_000);
  #retry = null;
  #pong = null;
  #opening = null;

  // handlers: connecting(), opened(), output(bytes), lost(words), ended(code, words)
  constructor(url, handlers) {
    this.#url = url;
    this.#handlers = handlers;
  }

  open() {
    clearTimeout(this.#retry);
    this.#retry = null;
    this.#handlers.connecting();
    const socket = new WebSocket(this.#url);
    socket.binaryType = "arraybuffer";
    this.#socket = socket;
    this.#waiting = [];
    this.#underWay = this.#drawn = 0;
    let silent = true;
    clearTimeout(this.#opening);
    this.#opening = setTimeout(() => this.drop(), OPEN_MS);
    socket.onopen = () => {
      clearTimeout(this.#opening);
      this.#handlers.opened();
    };
    socket.onmessage = (event) => {
      clearTimeout(this.#pong);
      if (typeof event.data === "string") {
        this.#control(JSON.parse(event.data));
        return;
      }
      if (silent) this.#backoff.reset(); // only a shell that speaks is a success
      silent = false;
      this.#handlers.output(new Uint8Array(event.data));
    };
    socket.onclose = (event) => this.#closed(event.code, event.reason);
  }

  get isOpen() {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  send(bytes) {
    if (!this.isOpen) return; // what is typed into the void must not surprise the next shell
    for (let start = 0; start < bytes.length; start += FRAME) this.#waiting.push(bytes.subarray(start, start + FRAME));
    this.#flush();
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

  // The network may have failed unnoticed: send a ping, and reconnect at once without a pong.
  check() {
    if (!this.isOpen) {
      if (this.#retry) this.open();
      return;
    }
    this.#tell({ ping: 1 });
    clearTimeout(this.#pong);
    this.#pong = setTimeout(() => this.drop(), PONG_MS);
  }

  drop() {
    const socket = this.#socket;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
    this.#closed(1006, "");
  }

  #tell(message) {
    if (this.isOpen) this.#socket.send(JSON.stringify(message));
  }

  #control(message) {
    if (!message.ack) return;
    this.#underWay -= message.ack;
    this.#flush();
  }

  #flush() {
    while (this.#waiting.length && this.#underWay < INPUT_WINDOW) {
      const frame = this.#waiting.shift();
      this.#underWay += frame.length;
      this.#socket.send(frame);
    }
  }

  #closed(code, words) {
    clearTimeout(this.#pong);
    clearTimeout(this.#opening);
    if (FINAL.has(code)) {
      this.#handlers.ended(code, words);
      return;
    }
    this.#retry = setTimeout(() => this.open(), this.#backoff.next());
    this.#handlers.lost(words);
  }
}
