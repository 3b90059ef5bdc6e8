import assert from "node:assert/strict";
import { test } from "node:test";
import { located, occurrences, step } from "#log-search";

test("places are found in any case and do not overlap", () => {
  assert.deepEqual(occurrences("Loss loss LOSS", "loss"), [[0, 4], [5, 9], [10, 14]]);
  assert.deepEqual(occurrences("aaaa", "aa"), [[0, 2], [2, 4]]);
  assert.deepEqual(occurrences("anything", ""), []);
  assert.equal(occurrences("a".repeat(9000), "a").length, 2000);
});

test("a place in the whole is a piece and an offset", () => {
  const lengths = [3, 0, 5];
  assert.deepEqual(located(lengths, [0, 2, 3, 7, 8]), [[0, 0], [0, 2], [2, 0], [2, 4], [2, 5]]);
  assert.deepEqual(located(lengths, [2, 2, 9]), [[0, 2], [0, 2], [2, 5]]);
});

test("steps go round", () => {
  assert.deepEqual([step(2, 1, 3), step(0, -1, 3), step(-1, 1, 0)], [0, 2, -1]);
});
