import assert from "node:assert/strict";
import test, { afterEach, beforeEach } from "node:test";
import { Code, Connection } from "#terminal-connection";

const KIB = 1024;

// A websocket without a network: the test opens it, lets it receive, and closes it.
class FakeSocket {
  static OPEN = 1;
  static all = [];
  sent = [];
  readyState = 0;
  isGivenUp = false;

  constructor(url) {
    this.url = url;
    FakeSocket.all.push(this);
  }

  send(data) {
    this.sent.push(data);
  }

  close() {
    this.isGivenUp = true;
    this.readyState = 3;
  }

  accept() {
    this.readyState = FakeSocket.OPEN;
    this.onopen();
  }

  receive(data) {
    this.onmessage({ data });
  }

  end(code, reason = "") {
    this.readyState = 3;
    this.onclose({ code, reason });
  }

  frames() {
    return this.sent.filter((each) => typeof each !== "string");
  }

  messages() {
    return this.sent.filter((each) => typeof each === "string").map((each) => JSON.parse(each));
  }
}

// Timers that go off when the test says so.
const timers = new Map();
const real = {
  setTimeout: globalThis.setTimeout,
  clearTimeout: globalThis.clearTimeout,
  setInterval: globalThis.setInterval,
  clearInterval: globalThis.clearInterval,
  WebSocket: globalThis.WebSocket,
};
let events;
let connection;
let now;
let ticks; // of the heartbeat, while the connection is open

function goOff() {
  for (const [id, { action }] of [...timers]) {
    timers.delete(id);
    action();
  }
}

const pauses = () => [...timers.values()].map(({ pause }) => pause);
const newest = () => FakeSocket.all.at(-1);
const answer = (number) => newest().receive(JSON.stringify({ pong: number }));

// Let time pass in steps of the heartbeat, whose questions are answered or not.
function pass(milliseconds, isAnswered = false) {
  for (const end = now + milliseconds; now < end && ticks; ) {
    now += 250;
    const before = newest().messages().length;
    ticks();
    const { ping } = newest().messages().slice(before).at(-1) ?? {};
    if (ping && isAnswered) answer(ping);
  }
}

beforeEach(() => {
  let next = 1;
  FakeSocket.all = [];
  timers.clear();
  globalThis.WebSocket = FakeSocket;
  globalThis.setTimeout = (action, pause) => {
    timers.set(next, { action, pause });
    return next++;
  };
  globalThis.clearTimeout = (id) => timers.delete(id);
  ticks = null;
  globalThis.setInterval = (action) => (ticks = action);
  globalThis.clearInterval = () => (ticks = null);
  now = 1000;
  events = [];
  connection = new Connection("ws://here/terminal", {
    connecting: () => events.push("connecting"),
    opened: () => events.push("opened"),
    output: (bytes) => events.push(["output", ...bytes]),
    silent: () => events.push("silent"),
    alive: () => events.push("alive"),
    unsent: () => events.push("unsent"),
    told: (message) => events.push(["told", message]),
    lost: (words) => events.push(["lost", words]),
    ended: (code, words) => events.push(["ended", code, words]),
  }, () => now);
  connection.open();
});

afterEach(() => Object.assign(globalThis, real));

test("output is handed on as bytes", () => {
  newest().accept();
  newest().receive(new Uint8Array([1, 2]).buffer);
  assert.deepEqual(events, ["connecting", "opened", ["output", 1, 2]]);
});

test("input is cut into frames, and waits while the window is full", () => {
  newest().accept();
  connection.send(new Uint8Array(300 * KIB));
  const sizes = () => newest().frames().map((frame) => frame.length);
  assert.deepEqual(sizes(), Array(4).fill(16 * KIB));
  newest().receive(JSON.stringify({ ack: 32 * KIB }));
  assert.equal(sizes().length, 6);
  for (let confirmed = 0; confirmed < 4; confirmed += 1) newest().receive(JSON.stringify({ ack: 64 * KIB }));
  assert.equal(sizes().reduce((sum, size) => sum + size), 300 * KIB);
});

test("input before the connection is up is dropped, which is told", () => {
  connection.send(new Uint8Array(5));
  newest().accept();
  assert.deepEqual(newest().frames(), []);
  assert.deepEqual(events, ["connecting", "unsent", "opened"]);
});

test("drawn output is confirmed in portions", () => {
  newest().accept();
  connection.drawn(40 * KIB);
  assert.deepEqual(newest().messages(), [{ ping: 1 }]);
  connection.drawn(40 * KIB);
  connection.drawn(10);
  assert.deepEqual(newest().messages().slice(1), [{ ack: 80 * KIB }]);
});

test("the size is told", () => {
  newest().accept();
  connection.resize(80, 24);
  assert.deepEqual(newest().messages(), [{ ping: 1 }, { resize: [80, 24] }]);
});

for (const [name, code] of Object.entries(Code)) {
  test(`code ${code} (${name}) is final`, () => {
    newest().accept();
    newest().end(code, "words");
    assert.deepEqual(events.at(-1), ["ended", code, "words"]);
    assert.equal(timers.size, 0);
  });
}

test("a loss is followed by another attempt, each later than the one before", () => {
  const seen = [];
  for (let attempt = 0; attempt < 3; attempt += 1) {
    newest().accept();
    newest().end(4502, "busy");
    assert.deepEqual(events.at(-1), ["lost", "busy"]);
    seen.push(...pauses());
    goOff();
  }
  assert.equal(FakeSocket.all.length, 4);
  for (const [index, pause] of seen.entries()) assert.ok(pause >= 250 * 2 ** index && pause <= 500 * 2 ** index, `${pause}`);
});

test("only a shell that speaks makes the next attempt an early one again", () => {
  const [first, second] = [true, false].map((speaks) => {
    for (let attempt = 0; attempt < 4; attempt += 1) {
      newest().accept();
      if (speaks) newest().receive(new Uint8Array([1]).buffer);
      newest().end(1006);
      if (attempt < 3) goOff();
    }
    const pause = pauses()[0];
    goOff();
    return pause;
  });
  assert.ok(first <= 500, `${first}`);
  assert.ok(second > 500, `${second}`);
});

test("a handshake that never ends is given up", () => {
  const socket = newest();
  assert.deepEqual(pauses(), [20_000]);
  goOff();
  assert.ok(socket.isGivenUp);
  assert.deepEqual(events.at(-1), ["lost", ""]);
});

test("a shell that is being started is waited for, longer than for an answer", () => {
  newest().accept();
  pass(20_000);
  assert.deepEqual(events, ["connecting", "opened"]);
  assert.deepEqual(pauses(), [30_000]);
  answer(1);
  assert.deepEqual(pauses(), []);
  pass(2500);
  assert.equal(events.at(-1), "silent");
});

test("a shell that never starts is given up", () => {
  newest().accept();
  goOff();
  assert.ok(newest().isGivenUp);
  assert.deepEqual(events.at(-1), ["lost", ""]);
});

test("silence is told within three seconds, and ends the connection later", () => {
  newest().accept();
  answer(1);
  pass(2500);
  assert.equal(events.at(-1), "silent");
  pass(3500);
  assert.ok(newest().isGivenUp);
  assert.deepEqual(events.at(-1), ["lost", ""]);
});

test("a connection that answers is kept, however long", () => {
  newest().accept();
  answer(1);
  pass(60_000, true);
  assert.deepEqual(events, ["connecting", "opened"]);
});

test("an answer that was seen is told before the next input", () => {
  newest().accept();
  answer(1);
  connection.send(new Uint8Array(1));
  connection.send(new Uint8Array(1));
  assert.deepEqual(newest().sent.map((each) => (typeof each === "string" ? JSON.parse(each) : "input")), [
    { ping: 1 },
    { seen: 1 },
    "input",
    "input",
  ]);
});

test("input after a pause waits for an answer", () => {
  newest().accept();
  answer(1);
  connection.pause();
  now += 60_000;
  connection.send(new Uint8Array([7]));
  assert.deepEqual(newest().frames(), []);
  assert.deepEqual(newest().messages().at(-1), { ping: 2 });
  answer(2);
  assert.deepEqual(newest().frames().map((frame) => [...frame]), [[7]]);
  assert.ok(!events.includes("unsent"));
});

test("input that nobody answers is dropped, which is told", () => {
  newest().accept();
  answer(1);
  connection.pause();
  now += 60_000;
  connection.send(new Uint8Array([7]));
  goOff();
  assert.equal(events.at(-1), "unsent");
  answer(2);
  assert.deepEqual(newest().frames(), []);
});

test("input into the silence is refused, and sent again once it ends", () => {
  newest().accept();
  answer(1);
  pass(2500);
  connection.send(new Uint8Array([7]));
  assert.equal(events.at(-1), "unsent");
  answer(2);
  assert.equal(events.at(-1), "alive");
  connection.send(new Uint8Array([8]));
  assert.deepEqual(newest().frames().map((frame) => [...frame]), [[8]]);
});

test("a browser without a network is silent at once, and connects anew by hand", () => {
  newest().accept();
  answer(1);
  connection.wentOffline();
  assert.equal(events.at(-1), "silent");
  connection.reconnect();
  assert.equal(FakeSocket.all.length, 2);
  assert.equal(events.at(-1), "connecting");
});

test("what the server tells is handed on", () => {
  newest().accept();
  newest().receive(JSON.stringify({ ends_at: null }));
  assert.deepEqual(events.at(-1), ["told", { ends_at: null }]);
});

test("a check while waiting for the next attempt makes it at once", () => {
  newest().accept();
  newest().end(1006);
  connection.check();
  assert.equal(FakeSocket.all.length, 2);
  assert.equal(events.at(-1), "connecting");
});
