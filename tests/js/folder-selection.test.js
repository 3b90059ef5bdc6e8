import assert from "node:assert/strict";
import test from "node:test";
import { Selection } from "#folder-selection";

const KEYS = ["a", "b", "c", "d", "e"];

test("choosing selects one alone, toggling adds and removes", () => {
  const selection = new Selection(KEYS);
  selection.choose("b");
  selection.toggle("d");
  assert.deepEqual(selection.selected, ["b", "d"]);
  selection.toggle("b");
  assert.deepEqual(selection.selected, ["d"]);
  selection.choose("a");
  assert.deepEqual(selection.selected, ["a"]);
});

test("Shift selects from the anchor in both directions", () => {
  const selection = new Selection(KEYS);
  selection.choose("c");
  selection.extendTo("e");
  assert.deepEqual(selection.selected, ["c", "d", "e"]);
  selection.extendTo("a");
  assert.deepEqual(selection.selected, ["a", "b", "c"]);
  assert.equal(selection.cursor, "a");
});

test("arrows move the cursor, stop at the ends and extend with Shift", () => {
  const selection = new Selection(KEYS);
  selection.move(-1);
  assert.equal(selection.cursor, "a");
  assert.deepEqual(selection.selected, []);
  selection.move(1);
  selection.move(2, { extend: true });
  assert.deepEqual(selection.selected, ["b", "c", "d"]);
  selection.move(-1, { extend: true });
  assert.deepEqual(selection.selected, ["b", "c"]);
  selection.move(Infinity);
  assert.equal(selection.cursor, "e");
});

test("a list drawn again keeps what is still there", () => {
  const selection = new Selection(KEYS);
  selection.toggle("b");
  selection.toggle("e");
  selection.replaceKeys(["a", "b", "c"]);
  assert.deepEqual(selection.selected, ["b"]);
  assert.equal(selection.cursor, "c");
  selection.replaceKeys(["e", "b"]);
  assert.deepEqual(selection.selected, ["b"]);
});

test("an empty list has no cursor and nothing to select", () => {
  const selection = new Selection();
  selection.move(1);
  selection.selectAll();
  selection.extendTo("a");
  assert.equal(selection.cursor, undefined);
  assert.deepEqual(selection.selected, []);
});

test("all are selected, and none", () => {
  const selection = new Selection(KEYS);
  selection.selectAll();
  assert.deepEqual(selection.selected, KEYS);
  selection.clear();
  assert.deepEqual(selection.selected, []);
});
