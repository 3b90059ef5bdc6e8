import assert from "node:assert/strict";
import test from "node:test";
import { fingerprintOf, isPassing, problemOf, Transfer } from "#upload-transfer";

const FILE = { size: 5, lastModified: 7, slice: () => new Blob(["x"]) };
const ITEM = { file: FILE, path: "a/b", size: 5, conflict: "refuse" };
const waited = () => new Promise((resolve) => setTimeout(resolve, 20)); // a blob is read
const settled = () => new Promise((resolve) => setImmediate(resolve));

// tus-js-client without a network: the test plays the server.
class FakeUpload {
  static previous = [];
  url = null;
  calls = [];

  constructor(file, options) {
    this.file = file;
    this.options = options;
    FakeUpload.latest = this;
  }

  findPreviousUploads() {
    return Promise.resolve(FakeUpload.previous);
  }

  resumeFromPreviousUpload(previous) {
    this.url = previous.uploadUrl;
  }

  start() {
    this.calls.push("start");
  }

  abort(isFinal = false) {
    this.calls.push(isFinal ? "cancel" : "pause");
    return isFinal ? Promise.reject(new Error("no network")) : Promise.resolve();
  }

  fail(status, body = "") {
    const originalResponse = status ? { getStatus: () => status, getBody: () => body } : null;
    this.options.onError({ originalResponse });
  }
}

async function begin(previous = [], file = FILE) {
  FakeUpload.previous = previous;
  const calls = [];
  const events = Object.fromEntries(
    ["progress", "offline", "done", "conflict", "failed"].map((name) => [name, (value) => calls.push(value === undefined ? name : [name, value])]),
  );
  const transfer = new Transfer({ ...ITEM, file }, events, { Upload: FakeUpload, endpoint: "/uploads/", csrf: "token", user: "1", folder: "f" });
  await settled();
  return { transfer, upload: FakeUpload.latest, calls };
}

test("an upload is begun with its path, and its progress is reported", async () => {
  const { upload, calls } = await begin();
  assert.deepEqual(upload.calls, ["start"]);
  assert.deepEqual(upload.options.metadata, { path: "a/b", conflict: "refuse" });
  assert.deepEqual(upload.options.headers, { "X-CSRFToken": "token" });
  upload.options.onProgress(3);
  upload.options.onSuccess();
  assert.deepEqual(calls, [["progress", 3], "done"]);
});

test("the same file goes on where it was interrupted", async () => {
  const { upload } = await begin([{ uploadUrl: "/uploads/1/" }]);
  assert.equal(upload.url, "/uploads/1/");
  assert.equal(await upload.options.fingerprint(), "gpuplatform:1:f:a/b:5:7");
  assert.notEqual(fingerprintOf({ user: "1", folder: "f" }, { ...ITEM, file: { size: 5, lastModified: 8 } }), "gpuplatform:1:f:a/b:5:7");
});

test("a name that exists is a question, a wrong offset is not", async () => {
  const { upload, calls } = await begin();
  upload.fail(409);
  assert.deepEqual(calls, ["conflict"]);
  const later = await begin([{ uploadUrl: "/uploads/1/" }]);
  later.upload.fail(409);
  await waited();
  later.transfer.pause(); // ends the timer
  assert.deepEqual(later.calls, ["offline"]);
});

test("a lost connection is waited out", async () => {
  const { transfer, upload, calls } = await begin();
  upload.fail(0);
  await waited();
  assert.deepEqual(calls, ["offline"]);
  transfer.retry();
  await settled();
  assert.deepEqual(upload.calls, ["start", "start"]);
  transfer.retry(); // nothing waits
  await settled();
  assert.equal(upload.calls.length, 2);
  upload.fail(502);
  await waited();
  transfer.pause();
  assert.deepEqual(calls, ["offline", "offline"]);
});

test("a file that cannot be read any more is a failure", async () => {
  const { upload, calls } = await begin([], { ...FILE, slice: () => ({ arrayBuffer: () => Promise.reject(new Error("gone")) }) });
  upload.fail(0);
  await waited();
  assert.deepEqual(calls, [["failed", "The file was changed or removed on your computer."]]);
});

test("a refusal is shown in the server's words", async () => {
  const { upload, calls } = await begin();
  upload.fail(507, '{"detail": "Your storage is full."}');
  assert.deepEqual(calls, [["failed", "Your storage is full."]]);
  assert.equal(problemOf(400, '{"path": ["Not a name."]}'), "Not a name.");
  assert.match(problemOf(413, "<html>"), /proxy/);
  assert.match(problemOf(403, '{"detail": "Authentication credentials were not provided."}'), /signed out/);
  assert.match(problemOf(403, ""), /signed out/);
  assert.match(problemOf(418, "null"), /418/);
});

test("what ends by itself is tried again, what does not is not", () => {
  for (const status of [0, 423, 429, 500, 502, 503]) assert.ok(isPassing(status), status);
  for (const status of [400, 401, 403, 404, 409, 413, 507]) assert.ok(!isPassing(status), status);
});

test("pausing, resuming and cancelling reach the upload", async () => {
  const { transfer, upload, calls } = await begin();
  transfer.pause();
  upload.fail(0); // the aborted request
  transfer.resume();
  await settled();
  transfer.cancel();
  await settled();
  assert.deepEqual(upload.calls, ["start", "pause", "start", "cancel"]);
  assert.deepEqual(calls, []);
});
