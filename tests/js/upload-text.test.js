import assert from "node:assert/strict";
import test from "node:test";
import { State } from "#upload-queue";
import { headline, percent, progressLine, shownItems, spanText, Speed, stateText } from "#upload-text";

test("the speed is a mean over the last seconds", () => {
  const speed = new Speed();
  assert.equal(speed.bytesPerSecond, 0);
  speed.add(0, 0);
  speed.add(500, 500);
  assert.equal(speed.bytesPerSecond, 0); // too early to say
  speed.add(2000, 2000);
  assert.equal(speed.bytesPerSecond, 1000);
  for (let second = 3; second < 30; second += 1) speed.add(2000, second * 1000);
  assert.equal(speed.bytesPerSecond, 0);
  speed.add(10, 30_000); // another upload
  speed.add(210, 32_000);
  assert.equal(speed.bytesPerSecond, 100);
});

test("the headline counts files", () => {
  const totals = { files: 3, done: 1, failed: 0 };
  assert.equal(headline(totals, true), "Uploading 2 of 3 files");
  assert.equal(headline({ files: 1, done: 1, failed: 0 }, false), "1 file uploaded");
  assert.equal(headline({ files: 3, done: 2, failed: 1 }, false), "2 of 3 files uploaded, 1 failed");
  assert.equal(headline({ files: 0, done: 0, failed: 0 }, false), "Nothing uploaded");
});

test("the line below says how much, how quickly and how long", () => {
  const totals = { bytes: 10 * 2 ** 20, sent: 2 ** 20 };
  assert.equal(progressLine(totals, 0), "1 MiB of 10 MiB");
  assert.equal(progressLine(totals, 2 ** 17), "1 MiB of 10 MiB · 128 KiB/s · 2 min left");
  assert.equal(spanText(5), "less than a minute left");
  assert.equal(spanText(4000), "1 h 7 min left");
});

test("an item says its state", () => {
  const item = { sent: 30, size: 90, state: State.SENDING, problem: "no space" };
  assert.equal(stateText(item), "33 %");
  assert.equal(stateText({ ...item, state: State.FAILED }), "no space");
  for (const state of Object.values(State)) assert.ok(stateText({ ...item, state }), state);
  assert.equal(percent({ sent: 0, size: 0 }), 0);
});

test("of many, questions and what moves are shown, in the order in which they were added", () => {
  const items = [State.DONE, State.WAITING, State.SENDING, State.CONFLICT, State.FAILED].map((state, id) => ({ id, state }));
  assert.deepEqual(shownItems(items, 3).map((item) => item.id), [2, 3, 4]);
  assert.equal(shownItems(items, 9).length, 5);
});
