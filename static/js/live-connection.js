// A websocket of JSON messages that is honest about itself: it knows within three seconds that nothing comes any more, and
// connects again by itself. No page here: states and messages go to handlers.
import { Backoff } from "#backoff";
import { Heartbeat } from "#heartbeat";

const OPEN_MS = 10_000; // in which a handshake is over, or never will be
const SIGNED_OUT = 4401;

export class LiveConnection {
  #url;
  #handlers;
  #socket = null;
  #state = "";
  #retry = null;
  #opening = null;
  #count = 0; // of questions
  #heardAt = null;
  #backoff = new Backoff(500, 15_000);
  #heartbeat = new Heartbeat({
    ask: () => this.send({ ping: ++this.#count }),
    silent: () => this.#become("silent"),
    alive: () => this.#become("live"),
    dead: () => this.#drop(),
  });

  // handlers: opened(), message(data), signedOut(), state(name): "connecting", "live", "silent" or "lost"
  constructor(url, handlers) {
    this.#url = url;
    this.#handlers = handlers;
  }

  // When something was last heard; null before the first time.
  get heardAt() {
    return this.#heardAt;
  }

  get isOpen() {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  connect() {
    clearTimeout(this.#retry);
    this.#retry = null;
    if (this.#state !== "lost") this.#become("connecting");
    const socket = (this.#socket = new WebSocket(this.#url));
    clearTimeout(this.#opening);
    this.#opening = setTimeout(() => this.#drop(), OPEN_MS);
    socket.onopen = () => {
      clearTimeout(this.#opening);
      this.#backoff.reset();
      this.#heartbeat.start();
      this.#heardAt = new Date();
      this.#become("live");
      this.#handlers.opened();
    };
    socket.onmessage = (event) => {
      this.#heardAt = new Date();
      this.#heartbeat.heard();
      const message = JSON.parse(event.data);
      if (!("pong" in message)) this.#handlers.message(message);
    };
    socket.onclose = (event) => this.#closed(event.code);
  }

  // Connect at once, whatever the present connection is worth.
  reconnect() {
    this.#abandon();
    this.connect();
  }

  // Returns whether the message was sent.
  send(message) {
    if (!this.isOpen) return false;
    this.#socket.send(JSON.stringify(message));
    return true;
  }

  // The network may have come back, or the page may be looked at again.
  check() {
    if (this.isOpen) this.#heartbeat.check();
    else if (this.#retry) this.connect();
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

  #become(state) {
    if (state === this.#state) return;
    this.#state = state;
    this.#handlers.state(state);
  }

  #abandon() {
    clearTimeout(this.#retry);
    clearTimeout(this.#opening);
    this.#heartbeat.stop();
    const socket = this.#socket;
    this.#socket = null;
    if (!socket) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
  }

  #drop() {
    this.#abandon();
    this.#closed(0);
  }

  #closed(code) {
    clearTimeout(this.#opening);
    this.#heartbeat.stop();
    if (code === SIGNED_OUT) {
      this.#handlers.signedOut();
      return;
    }
    this.#retry = setTimeout(() => this.connect(), this.#backoff.next());
    this.#become("lost");
  }
}
