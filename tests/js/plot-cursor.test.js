import assert from "node:assert/strict";
import test from "node:test";
import { indexAfter } from "#plot-cursor";

test("keys move the cursor by a point, by ten, and to both ends", () => {
  assert.equal(indexAfter("ArrowLeft", 5, 20), 4);
  assert.equal(indexAfter("ArrowRight", 5, 20, true), 15);
  assert.equal(indexAfter("PageDown", 15, 20), 5);
  assert.equal(indexAfter("Home", 5, 20), 0);
  assert.equal(indexAfter("End", 5, 20), 20);
});

test("the cursor begins at the last point and stays within the plot", () => {
  assert.equal(indexAfter("ArrowLeft", -1, 20), 19);
  assert.equal(indexAfter("ArrowLeft", 0, 20), 0);
  assert.equal(indexAfter("PageUp", 18, 20), 20);
});

test("Escape takes the cursor away, and other keys are the browser's", () => {
  assert.equal(indexAfter("Escape", 5, 20), -1);
  assert.equal(indexAfter("Tab", 5, 20), null);
});
