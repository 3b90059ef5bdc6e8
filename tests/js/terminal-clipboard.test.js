import assert from "node:assert/strict";
import test from "node:test";
import { textFromOsc52 } from "#terminal-clipboard";

const base64 = (text) => Buffer.from(text).toString("base64");

test("what a program copies is decoded as UTF-8", () => {
  assert.equal(textFromOsc52(`c;${base64("naïve ☃")}`), "naïve ☃");
  assert.equal(textFromOsc52(`;${base64("plain")}`), "plain");
});

test("a question for the clipboard is not answered", () => {
  assert.equal(textFromOsc52("c;?"), null);
});

test("what is no base64 copies nothing", () => {
  assert.equal(textFromOsc52("c;%%%"), null);
});
