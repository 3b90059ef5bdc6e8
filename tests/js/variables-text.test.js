// Rows of environment variables: what is applied, what is wrong, and what pasted lines stand for.
import assert from "node:assert/strict";
import test from "node:test";
import { applied, isIncomplete, isSame, problemsOf, rowsOf } from "#variables-text";

const row = (name, value) => ({ name, value });

test("only rows with a name and a value are applied", () => {
  const rows = [row(" A ", "1"), row("", ""), row("B", ""), row("", "2")];
  assert.deepEqual(applied(rows), [row("A", "1")]);
  assert.deepEqual(rows.map(isIncomplete), [false, false, true, true]);
  assert.ok(isSame(rows, [row("A", "1")]));
  assert.ok(!isSame(rows, [row("A", "2")]));
});

test("a wrong name and one that is set twice are told at their rows", () => {
  const problems = problemsOf([row("1A", "x"), row("A", "1"), row("A", "2"), row("1B", "")]);
  assert.equal(problems[0], "A name has letters, digits and _ and does not begin with a digit.");
  assert.deepEqual(problems.slice(1), ["", "A is set twice.", ""]);
});

test("pasted assignments become rows", () => {
  const text = '# settings\nexport A=1\nB="two words"\n\nC=x=y\n';
  assert.deepEqual(rowsOf(text), [row("A", "1"), row("B", "two words"), row("C", "x=y")]);
  assert.deepEqual(rowsOf("A=1\nnot one"), []);
  assert.deepEqual(rowsOf("NAME"), []);
});
