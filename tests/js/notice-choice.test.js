// Which notifications a page shows, and how.
import assert from "node:assert/strict";
import test from "node:test";
import { choose, countText, remembered } from "#notice-choice";

const both = { id: 1, onPage: true, inBrowser: true };
const browserAlone = { id: 2, onPage: false, inBrowser: true };
const pageAlone = { id: 3, onPage: true, inBrowser: false };
const all = [both, browserAlone, pageAlone];

test("a page that is looked at shows toasts, and by the browser what is for it alone", () => {
  const chosen = choose(all, [], { isVisible: true, mayNotify: true });
  assert.deepEqual(chosen, { toasts: [both, pageAlone], browser: [browserAlone], done: [1, 2, 3] });
});

test("a page in the background lets the browser show, and keeps the rest for later", () => {
  const chosen = choose(all, [], { isVisible: false, mayNotify: true });
  assert.deepEqual(chosen, { toasts: [], browser: [both, browserAlone], done: [1, 2] });
});

test("without permission all waits for a page that is looked at", () => {
  assert.deepEqual(choose(all, [], { isVisible: false, mayNotify: false }).done, []);
  const chosen = choose(all, [], { isVisible: true, mayNotify: false });
  assert.deepEqual(chosen, { toasts: [both, pageAlone], browser: [], done: [1, 2, 3] });
});

test("what another page of the browser has shown is only reported", () => {
  const chosen = choose(all, [1, 3], { isVisible: true, mayNotify: true });
  assert.deepEqual(chosen, { toasts: [], browser: [browserAlone], done: [1, 2, 3] });
});

test("a bounded number of ids is remembered", () => {
  assert.deepEqual(remembered([1, 2], [2, 3]), [1, 2, 3]);
  const many = Array.from({ length: 150 }, (_, id) => id);
  assert.deepEqual(remembered(many, [200]).slice(-2), [149, 200]);
  assert.equal(remembered(many, [200]).length, 100);
});

test("the bell counts up to 99", () => {
  assert.deepEqual([0, 1, 98, 99].map(countText), ["", "1", "98", "99+"]);
});
