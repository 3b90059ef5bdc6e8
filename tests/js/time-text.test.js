import assert from "node:assert/strict";
import test from "node:test";
import { exactTextOf, lengthOfTime, textOf } from "#time-text";

test("a length of time is told in its two largest units", () => {
  assert.equal(lengthOfTime(-5), "0 s");
  assert.equal(lengthOfTime(59.9), "59 s");
  assert.equal(lengthOfTime(61), "1 min 1 s");
  assert.equal(lengthOfTime(3600 + 120 + 3), "1 h 2 min");
  assert.equal(lengthOfTime(2 * 86_400 + 3 * 3600 + 60), "2 d 3 h");
});

test("a span runs until its end, or until now", () => {
  const start = new Date("2030-01-31T12:00:00Z");
  const now = new Date("2030-01-31T12:00:30Z");
  assert.equal(textOf("span", start, { now }), "30 s");
  assert.equal(textOf("span", start, { end: new Date("2030-01-31T12:00:10Z"), now }), "10 s");
});

test("the time of another day names the day", () => {
  const start = new Date(2030, 0, 31, 12, 34);
  const today = textOf("clock", start, { now: new Date(2030, 0, 31, 23, 0) });
  const tomorrow = textOf("clock", start, { now: new Date(2030, 1, 1, 0, 30) });
  assert.match(today, /34/);
  assert.doesNotMatch(today, /31/);
  assert.match(tomorrow, /31/);
});

test("a moment has date and time, and exactly told its seconds too", () => {
  const start = new Date(2030, 0, 31, 12, 34, 56);
  assert.match(textOf("moment", start, { now: new Date(2031, 0, 1) }), /2030/);
  assert.match(textOf("moment", start, { now: new Date(2030, 5, 1) }), /31.*34/);
  assert.doesNotMatch(textOf("moment", start, { now: new Date(2030, 5, 1) }), /2030/);
  assert.doesNotMatch(textOf("moment", start), /56/);
  assert.match(exactTextOf(start), /56/);
});

test("the time until an end counts down to none", () => {
  const end = new Date("2030-01-01T12:00:00Z");
  assert.equal(textOf("left", end, { now: new Date("2030-01-01T11:50:30Z") }), "9 min 30 s left");
  assert.equal(textOf("left", end, { now: new Date("2030-01-01T12:00:01Z") }), "ending now");
});
