import assert from "node:assert/strict";
import test from "node:test";
import { entriesOfDrop, filesOfInput, joined, walk } from "#upload-entries";

const file = (name) => ({ name, isFile: true, isDirectory: false, file: (resolve) => resolve({ name }) });

// A directory whose reader returns two entries at a time, as browsers return a hundred.
function directory(name, children) {
  return {
    name,
    isFile: false,
    isDirectory: true,
    createReader: () => {
      const left = [...children];
      return { readEntries: (resolve) => resolve(left.splice(0, 2)) };
    },
  };
}

test("directories are walked to their end", async () => {
  const tree = directory("data", [file("1"), file("2"), file("3"), directory("deep", [file("4")]), directory("empty", [])]);
  const found = await walk([tree, file("alone")]);
  assert.deepEqual(found.files.map((each) => each.path).sort(), ["alone", "data/1", "data/2", "data/3", "data/deep/4"]);
  assert.deepEqual(found.directories, ["data/empty"]);
});

test("an entry that cannot be read is an error", async () => {
  const broken = { ...file("x"), file: (resolve, reject) => reject(new Error("gone")) };
  await assert.rejects(walk([broken]), /gone/);
});

test("a drop gives its files and no text", () => {
  const entry = file("a");
  const items = [{ kind: "string" }, { kind: "file", webkitGetAsEntry: () => entry }, { kind: "file", webkitGetAsEntry: () => null }];
  assert.deepEqual(entriesOfDrop({ items }), [entry]);
});

test("an input gives paths of a directory, or names", () => {
  const files = [{ name: "b", webkitRelativePath: "a/b" }, { name: "c", webkitRelativePath: "" }];
  assert.deepEqual(filesOfInput({ files }).map((each) => each.path), ["a/b", "c"]);
  assert.equal(joined("", "a"), "a");
  assert.equal(joined("x/y", "a/b"), "x/y/a/b");
});
