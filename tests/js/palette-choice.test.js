import assert from "node:assert/strict";
import { test } from "node:test";

import { hasAllWords, holds, isOfInputMethod, nextIndex, selectedOf } from "#palette-choice";

test("every word that is typed begins a word, or is within one if it is longer", () => {
  assert.ok(hasAllWords("SSH keys", "ss key"));
  assert.ok(hasAllWords("Deployments", "ploy"));
  assert.ok(hasAllWords("Deployments", "  "));
  assert.ok(!hasAllWords("Deployments", "pl"));
  assert.ok(!hasAllWords("SSH keys", "ssh tokens"));
});

test("the selection goes round", () => {
  assert.deepEqual([nextIndex(0, 1, 3), nextIndex(2, 1, 3), nextIndex(0, -1, 3)], [1, 0, 2]);
  assert.deepEqual([nextIndex(-1, 1, 3), nextIndex(-1, -1, 3), nextIndex(-1, 1, 0)], [0, 2, -1]);
});

test("what was found holds what is typed, until the server answers", () => {
  assert.ok(holds("train-Large Running", " LARGE "));
  assert.ok(!holds("train-large Running", "tokens"));
});

test("what the arrows chose stays selected where it is shown", () => {
  assert.equal(selectedOf(["a", "b"], "b", { isChosen: true }), "b");
  assert.equal(selectedOf(["a", "b"], "c", { isChosen: true }), "a");
  assert.equal(selectedOf(["a", "b"], "b", { isChosen: false }), "a");
  assert.equal(selectedOf([], null, { isChosen: true }), undefined);
});

test("keys of an input method are its own, in Safari too", () => {
  assert.ok(isOfInputMethod({ key: "Enter", isComposing: true, keyCode: 13 }));
  assert.ok(isOfInputMethod({ key: "Enter", isComposing: false, keyCode: 229 }));
  assert.ok(!isOfInputMethod({ key: "Enter", isComposing: false, keyCode: 13 }));
});
