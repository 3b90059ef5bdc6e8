import assert from "node:assert/strict";
import { test } from "node:test";

import { actionOf, isPaletteKey } from "#key-actions";

const BODY = { tag: "BODY" };

test("keys act where no text is typed", () => {
  assert.deepEqual(["n", "z", "/", "?", "x"].map((key) => actionOf({ key }, BODY)), ["launch", "undo", "search", "keys", ""]);
  assert.equal(actionOf({ key: "n" }, { tag: "INPUT", type: "checkbox" }), "launch");
  assert.equal(actionOf({ key: "n" }, { tag: "A" }), "launch");
});

test("fields, dialogs, shortcuts and input methods keep their keys", () => {
  const fields = [{ tag: "INPUT", type: "search" }, { tag: "TEXTAREA" }, { tag: "SELECT" }, { tag: "DIV", isEditable: true }];
  for (const field of fields) assert.equal(actionOf({ key: "n" }, field), "");
  assert.equal(actionOf({ key: "n" }, BODY, { isDialogOpen: true }), "");
  for (const held of ["ctrlKey", "metaKey", "altKey", "isComposing", "repeat"]) assert.equal(actionOf({ key: "n", [held]: true }, BODY), "");
});

test("letters of other layouts act by their place", () => {
  assert.equal(actionOf({ key: "ㅜ", code: "KeyN" }, BODY), "launch");
  assert.equal(actionOf({ key: "n", code: "KeyL" }, BODY), "launch"); // Dvorak: what is printed on the key counts
  assert.equal(actionOf({ key: "Dead", code: "KeyN" }, BODY), "");
});

test("the palette opens by Command-K on a Mac alone", () => {
  const none = { altKey: false, ctrlKey: false, metaKey: false, shiftKey: false, code: "KeyK" };
  const [control, command] = [{ ...none, ctrlKey: true }, { ...none, metaKey: true }];
  for (const key of ["k", "K", "л", "ㅏ"]) {
    assert.deepEqual([control, command].map((held) => isPaletteKey({ ...held, key }, false)), [true, false]);
    assert.deepEqual([control, command].map((held) => isPaletteKey({ ...held, key }, true)), [false, true]);
  }
  assert.ok(!isPaletteKey({ ...control, key: "v" }, false));
  assert.ok(!isPaletteKey({ ...control, key: "k", shiftKey: true }, false));
  assert.ok(!isPaletteKey({ ...none, key: "k" }, false));
});
