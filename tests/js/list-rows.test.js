import assert from "node:assert/strict";
import test from "node:test";
import { stepsFor } from "#list-rows";

const page = { shown: ["a", "b"], tab: "running", isNewestFirst: true, newest: 10, size: 3 };
const row = (id, tab = "running", created = 11) => ({ id, tab, created });

test("a row that is shown is changed in its place", () => {
  assert.deepEqual(stepsFor([row("a")], page), [{ action: "morph", id: "a" }]);
});

test("a row that has left the tab is removed", () => {
  assert.deepEqual(stepsFor([row("a", "finished")], page), [{ action: "remove", id: "a" }]);
});

test("a full page that loses a row is filled again", () => {
  const full = { ...page, shown: ["a", "b", "c"] };
  assert.deepEqual(stepsFor([row("a", "finished")], full), [{ action: "remove", id: "a" }, { action: "fetch" }]);
});

test("the last row that leaves gives way to what an empty list says", () => {
  assert.deepEqual(stepsFor([row("a", "others")], { ...page, shown: ["a"] }), [{ action: "remove", id: "a" }, { action: "fetch" }]);
});

test("new sessions are put first, the newest at the top", () => {
  assert.deepEqual(stepsFor([row("n", "running", 12), row("m", "running", 11)], { ...page, size: 9 }), [
    { action: "insert", id: "m" },
    { action: "insert", id: "n" },
  ]);
  assert.deepEqual(stepsFor([row("n")], { ...page, shown: [], newest: 0 }).at(-1), { action: "fetch" });
  assert.deepEqual(stepsFor([row("n"), row("m")], page).at(-1), { action: "fetch" }); // more than a page holds
});

test("a session of another page or tab changes nothing here", () => {
  assert.deepEqual(stepsFor([row("old", "running", 3), row("n", "finished")], page), []);
});

test("a list of one status loses and gains rows by it", () => {
  const waiting = { ...page, status: "PENDING", isNewestFirst: false };
  const changed = (id, status) => ({ ...row(id), status });
  assert.deepEqual(stepsFor([changed("a", "RUNNING"), changed("b", "PENDING")], waiting), [
    { action: "remove", id: "a" },
    { action: "morph", id: "b" },
  ]);
  assert.deepEqual(stepsFor([changed("n", "PENDING"), changed("m", "RUNNING")], waiting), [{ action: "fetch" }]);
});

test("in another order only the server knows whether it belongs here", () => {
  assert.deepEqual(stepsFor([row("n")], { ...page, isNewestFirst: false }), [{ action: "fetch later" }]);
});
