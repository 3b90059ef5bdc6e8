import assert from "node:assert/strict";
import test from "node:test";
import { Backoff } from "#backoff";

const pauses = (backoff, count) => Array.from({ length: count }, () => backoff.next());

test("pauses double up to the limit", () => {
  assert.deepEqual(pauses(new Backoff(500, 3000, () => 1), 5), [500, 1000, 2000, 3000, 3000]);
});

test("pauses are spread over their upper half", () => {
  assert.deepEqual(pauses(new Backoff(500, 3000, () => 0), 2), [250, 500]);
});

test("a success begins anew", () => {
  const backoff = new Backoff(500, 3000, () => 1);
  pauses(backoff, 3);
  backoff.reset();
  assert.equal(backoff.next(), 500);
});
