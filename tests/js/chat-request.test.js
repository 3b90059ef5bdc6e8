import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import test from "node:test";
import { asCurl, asPython, chatBody, readAnswer, requestAsCurl, shellWord } from "#chat-request";

const USER = { role: "user", content: "it's \"me\"\n$HOME `x`" };
const NONE = { system: "", temperature: null, max_tokens: null };

test("only parameters that are given are sent", () => {
  assert.deepEqual(chatBody("m", [USER], NONE), { model: "m", messages: [USER] });
  const body = chatBody("m", [USER], { system: "Be kind.", temperature: 0, max_tokens: 5 });
  assert.deepEqual(body.messages, [{ role: "system", content: "Be kind." }, USER]);
  assert.deepEqual([body.temperature, body.max_tokens], [0, 5]);
});

test("answers are read whatever they lack", () => {
  const nothing = { text: "", usage: null, error: "" };
  for (const json of ["", "null", "[]", "{}", '{"choices": []}', '{"choices": [{"delta": {}}]}', '{"choices": [{"delta": {"content": null}}]}']) {
    assert.deepEqual(readAnswer(json), nothing);
  }
  assert.equal(readAnswer('{"choices": [{"delta": {"content": "a"}}]}').text, "a");
  assert.equal(readAnswer('{"choices": [{"message": {"content": "b"}}]}').text, "b");
  assert.deepEqual(readAnswer('{"choices": [], "usage": {"total_tokens": 3}}').usage, { total_tokens: 3 });
  assert.equal(readAnswer('{"error": {"message": "full"}}').error, "full");
  assert.equal(readAnswer('{"error": "full"}').error, "full");
});

test("a shell reads the words as they were typed", () => {
  const read = execFileSync("/bin/sh", ["-c", `printf %s ${shellWord(USER.content)}`], { encoding: "utf8" });
  assert.equal(read, USER.content);
});

test("the command sends the conversation", () => {
  const body = chatBody("m", [USER], NONE);
  const command = asCurl("http://a", body).replace("curl", "printf '%s\\n'");
  const words = execFileSync("/bin/sh", ["-c", command], { encoding: "utf8" });
  assert.ok(words.includes(JSON.stringify({ ...body, stream: true })));
});

test("the program is Python with the same conversation", () => {
  const program = asPython("http://a", chatBody("m", [USER], { ...NONE, temperature: 0.5 }));
  assert.ok(program.includes(`"content": ${JSON.stringify(USER.content)}`));
  assert.ok(program.includes("    temperature=0.5,\n"));
});

test("a request is written with its headers and body", () => {
  const command = requestAsCurl("http://a", { method: "PUT", path: "/x y", headers: [["X-A", "1"]], body: "b" });
  assert.ok(command.startsWith("curl -X PUT 'http://a/x y'"));
  assert.ok(command.includes("-H 'X-A: 1'") && command.endsWith("--data-binary 'b'"));
});
