import assert from "node:assert/strict";
import { test } from "node:test";

import { actionOf } from "#key-actions";

const BODY = { tag: "BODY" };

test("keys act where no text is typed", () => {
  assert.deepEqual(["n", "/", "?", "x"].map((key) => actionOf({ key }, BODY)), ["launch", "search", "keys", ""]);
  assert.equal(actionOf({ key: "n" }, { tag: "INPUT", type: "checkbox" }), "launch");
  assert.equal(actionOf({ key: "n" }, { tag: "A" }), "launch");
});

test("fields, dialogs, shortcuts and input methods keep their keys", () => {
  const fields = [{ tag: "INPUT", type: "search" }, { tag: "TEXTAREA" }, { tag: "SELECT" }, { tag: "DIV", isEditable: true }];
  for (const field of fields) assert.equal(actionOf({ key: "n" }, field), "");
  assert.equal(actionOf({ key: "n" }, BODY, { isDialogOpen: true }), "");
  for (const held of ["ctrlKey", "metaKey", "altKey", "isComposing", "repeat"]) assert.equal(actionOf({ key: "n", [held]: true }, BODY), "");
});
