// What the launch page says about the folders of a session.
import assert from "node:assert/strict";
import test from "node:test";

import { mountsText } from "#mounts-text";

const data = { name: "data", path: "", isReadOnly: false };
const models = { name: "models", path: "/mnt/models", isReadOnly: true };

test("without a folder it warns", () => {
  assert.deepEqual(mountsText([], []), {
    text: "No folders are mounted: what the session writes is lost when it ends.",
    isWarning: true,
  });
});

test("folders that are always mounted do not save the rest", () => {
  const { text, isWarning } = mountsText([], [".local", ".cache"]);
  assert.ok(isWarning);
  assert.match(text, /\.local and \.cache are always mounted\. What the session writes elsewhere is lost/);
});

test("folders are named with their paths and rights", () => {
  assert.deepEqual(mountsText([data, models], [".local"]), {
    text: "Mounts data and models at /mnt/models (read-only); .local is always mounted.",
    isWarning: false,
  });
});

test("a path that is the usual one is not said", () => {
  assert.equal(mountsText([{ ...data, path: "/home/work/data" }], []).text, "Mounts data.");
});
