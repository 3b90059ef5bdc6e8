import assert from "node:assert/strict";
import test from "node:test";
import { State, UploadQueue } from "#upload-queue";

// Uploads without a network: the test tells each how it goes.
function queueOf(limit = 2) {
  const started = [];
  const queue = new UploadQueue(
    (item, events) => {
      const transfer = { item, events, calls: [], pause: () => transfer.calls.push("pause"), resume: () => transfer.calls.push("resume"), cancel: () => transfer.calls.push("cancel") };
      started.push(transfer);
      return transfer;
    },
    { limit },
  );
  return { queue, started };
}

const files = (...names) => names.map((path) => ({ path, size: 100 }));
const states = (queue) => queue.items.map((item) => item.state);

test("only a few are sent at once, and the next follows", () => {
  const { queue, started } = queueOf();
  queue.add(files("a", "b", "c"));
  assert.deepEqual(states(queue), [State.SENDING, State.SENDING, State.WAITING]);
  started[0].events.progress(40);
  assert.deepEqual(queue.totals, { files: 3, done: 0, failed: 0, bytes: 300, sent: 40 });
  started[0].events.done();
  assert.deepEqual(states(queue), [State.DONE, State.SENDING, State.SENDING]);
  started[1].events.failed("no space");
  started[2].events.done();
  assert.equal(queue.isActive, false);
  assert.equal(queue.items[1].problem, "no space");
  assert.deepEqual(queue.totals, { files: 3, done: 2, failed: 1, bytes: 300, sent: 200 });
});

test("a pause lets another one go, and resuming goes on where it stopped", () => {
  const { queue, started } = queueOf(1);
  queue.add(files("a", "b"));
  queue.pause(queue.items[0]);
  assert.deepEqual(started[0].calls, ["pause"]);
  assert.deepEqual(states(queue), [State.PAUSED, State.SENDING]);
  queue.resume(queue.items[0]);
  assert.deepEqual(states(queue), [State.WAITING, State.SENDING]);
  started[1].events.done();
  assert.deepEqual(started[0].calls, ["pause", "resume"]);
  started[0].events.progress(60);
  assert.equal(queue.items[0].sent, 60);
});

test("late news of a paused or cancelled one changes nothing", () => {
  const { queue, started } = queueOf();
  queue.add(files("a", "b"));
  queue.pause(queue.items[0]);
  queue.cancel(queue.items[1]);
  started[0].events.progress(50);
  started[0].events.offline();
  started[1].events.done();
  started[1].events.failed("x");
  assert.deepEqual(states(queue), [State.PAUSED, State.CANCELLED]);
  assert.equal(queue.totals.files, 1);
  assert.deepEqual(started[1].calls, ["cancel"]);
});

test("one that waits for the connection keeps its place", () => {
  const { queue, started } = queueOf(1);
  queue.add(files("a", "b"));
  started[0].events.offline();
  assert.deepEqual(states(queue), [State.OFFLINE, State.WAITING]);
  started[0].events.progress(10);
  assert.deepEqual(states(queue), [State.SENDING, State.WAITING]);
});

test("a name that exists is asked about, and sent again with the answer", () => {
  const { queue, started } = queueOf();
  queue.add(files("a", "b", "c"));
  started[0].events.conflict();
  started[1].events.conflict();
  assert.deepEqual(states(queue), [State.CONFLICT, State.CONFLICT, State.SENDING]);
  queue.answer(queue.items[0], "replace");
  assert.equal(started[3].item.conflict, "replace");
  queue.answer(queue.items[1], "skip");
  assert.deepEqual(states(queue), [State.SENDING, State.SKIPPED, State.SENDING]);
});

test("an answer for all holds for later conflicts, but not for the next upload", () => {
  const { queue, started } = queueOf(1);
  queue.add(files("a", "b"));
  started[0].events.conflict();
  queue.answer(queue.items[0], "keep-both", { forAll: true });
  started[1].events.conflict(); // of b
  assert.equal(queue.items[1].conflict, "keep-both");
  started[2].events.done();
  started[3].events.done();
  assert.equal(queue.isActive, false);
  queue.clear();
  queue.add(files("c"));
  started[4].events.conflict();
  assert.deepEqual(states(queue), [State.CONFLICT]);
});

test("a failed one can be tried again or put away", () => {
  const { queue, started } = queueOf();
  queue.add(files("a"));
  started[0].events.failed("no space");
  queue.resume(queue.items[0]);
  assert.deepEqual([queue.items[0].state, queue.items[0].problem], [State.SENDING, ""]);
  started[0].events.failed("no space");
  queue.cancel(queue.items[0]);
  assert.deepEqual(states(queue), [State.CANCELLED]);
});

test("all are paused, resumed and cancelled", () => {
  const { queue } = queueOf(1);
  queue.add(files("a", "b", "c"));
  queue.pauseAll();
  assert.deepEqual(states(queue), Array(3).fill(State.PAUSED));
  queue.resumeAll();
  assert.deepEqual(states(queue), [State.SENDING, State.WAITING, State.WAITING]);
  queue.cancelAll();
  assert.equal(queue.isActive, false);
});
