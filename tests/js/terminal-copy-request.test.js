import assert from "node:assert/strict";
import test, { afterEach, beforeEach, mock } from "node:test";
import { CopyRequest } from "#terminal-copy-request";

const HELLO = "c;aGVsbG8="; // as OSC 52 carries it
const listeners = {};
let now;
let copied;
let place;
let request;

beforeEach(() => {
  now = 60_000;
  mock.method(performance, "now", () => now);
  globalThis.addEventListener = (name, action) => (listeners[name] = action);
  const words = { addEventListener: () => {}, textContent: "" };
  place = { hidden: true, querySelector: () => words };
  copied = [];
  request = new CopyRequest(place, (text) => copied.push(text), () => {});
  request.watch({ addEventListener: (name, action) => (listeners[name] = action) });
});

afterEach(() => {
  mock.restoreAll();
  delete globalThis.addEventListener;
});

function gesture({ width = 0, detail = 1, isTrusted = true }) {
  listeners.mousedown({ clientX: 10, clientY: 10, isTrusted });
  listeners.mouseup({ clientX: 10 + width, clientY: 10, detail });
}

for (const [name, made] of [["a drag", { width: 50 }], ["a double click", { detail: 2 }]]) {
  test(`what comes soon after ${name} is copied`, () => {
    gesture(made);
    now += 900;
    request.ask(HELLO);
    assert.deepEqual([copied, place.hidden], [["hello"], true]);
  });

  test(`what comes long after ${name} is asked about`, () => {
    gesture(made);
    now += 1100;
    request.ask(HELLO);
    assert.deepEqual([copied, place.hidden], [[], false]);
  });
}

for (const [name, made] of [["a click", {}], ["a drag by a script", { width: 50, isTrusted: false }]]) {
  test(`what comes soon after ${name} is asked about`, () => {
    gesture(made);
    request.ask(HELLO);
    assert.deepEqual([copied, place.hidden], [[], false]);
  });
}
