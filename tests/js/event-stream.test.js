import assert from "node:assert/strict";
import test from "node:test";
import { EventStreamParser, eventsOf } from "#event-stream";

test("events are found wherever the stream is cut", () => {
  const stream = 'data: {"a": 1}\r\n\r\n: comment\nid: 7\ndata: x\ndata:y\n\nevent: end\ndata: [DONE]\n\ndata: lost';
  for (let size = 1; size < stream.length; size += 1) {
    const parser = new EventStreamParser();
    const found = [];
    for (let at = 0; at < stream.length; at += size) found.push(...parser.feed(stream.slice(at, at + size)));
    assert.deepEqual(found, ['{"a": 1}', "x\ny", "[DONE]"]);
  }
});

test("an event without an end is refused", () => {
  const parser = new EventStreamParser();
  assert.throws(() => {
    for (let count = 0; count < 30; count += 1) parser.feed(`data: ${"x".repeat(50_000)}\n`);
  }, RangeError);
});

test("letters are whole across pieces of the body", async () => {
  const bytes = new TextEncoder().encode("data: 안녕\n\n");
  const body = new ReadableStream({
    start(controller) {
      for (const byte of bytes) controller.enqueue(Uint8Array.of(byte));
      controller.close();
    },
  });
  const found = [];
  for await (const data of eventsOf({ body })) found.push(data);
  assert.deepEqual(found, ["안녕"]);
});
