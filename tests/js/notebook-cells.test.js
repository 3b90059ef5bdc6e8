import assert from "node:assert/strict";
import { test } from "node:test";
import { readNotebook } from "#notebook-cells";

const PNG = Buffer.from("89504e470d0a1a0a0000000d", "hex").toString("base64");
const read = (cells, more = {}) => readNotebook(JSON.stringify({ cells, metadata: {}, nbformat: 4, ...more }));
const code = (...outputs) => ({ cell_type: "code", source: ["1 +\n", "1"], execution_count: 3, outputs });
const text = (value) => ({ output_type: "stream", text: value });

test("cells are read in order with their outputs", () => {
  const shown = read([
    { cell_type: "markdown", source: "# A *title*" },
    code(
      text(["one\n", "two"]),
      { output_type: "execute_result", data: { "text/plain": "2", "text/html": "<b>2</b>" } },
      { output_type: "display_data", data: { "image/png": [PNG.slice(0, 4), "\n", PNG.slice(4)], "text/plain": "<Figure>" } },
      { output_type: "error", traceback: ["\x1b[0;31mZeroDivisionError\x1b[0m: no"] },
    ),
    { cell_type: "raw", source: "as it is" },
  ]);
  assert.deepEqual(shown, {
    isCut: false,
    cells: [
      { kind: "markdown", source: "# A *title*", number: "", outputs: [] },
      {
        kind: "code",
        source: "1 +\n1",
        number: "3",
        outputs: [
          { kind: "text", text: "one\ntwo" },
          { kind: "text", text: "2" },
          { kind: "image", text: `data:image/png;base64,${PNG}` },
          { kind: "error", text: "ZeroDivisionError: no" },
        ],
      },
      { kind: "raw", source: "as it is", number: "", outputs: [] },
    ],
  });
});

test("an image that is no PNG is not shown", () => {
  for (const encoded of ["not base64!", `${PNG}"><script>`, Buffer.from("<svg onload=alert(1)>").toString("base64"), 5, null]) {
    const output = { output_type: "display_data", data: { "image/png": encoded, "text/plain": "instead" } };
    assert.deepEqual(read([code(output)]).cells[0].outputs, [{ kind: "text", text: "instead" }]);
  }
});

test("what is no notebook is refused", () => {
  for (const content of ["", "{", "[".repeat(100_000), "\x89PNG"]) assert.deepEqual(readNotebook(content), { problem: "json" });
  for (const content of ["[]", "null", '{"cells": 5}', '{"worksheets": []}']) assert.deepEqual(readNotebook(content), { problem: "format" });
});

test("parts of the wrong type are passed over", () => {
  const { cells } = read([
    "text",
    { cell_type: "code", source: 5, outputs: "none", execution_count: "<b>" },
    { cell_type: "code", outputs: [5, { output_type: "display_data", data: 5 }, { output_type: "error", traceback: [5] }] },
    { cell_type: ["markdown"] },
  ]);
  assert.deepEqual(cells.map(({ kind, source, number, outputs }) => [kind, source, number, outputs]), [
    ["code", "", "", []],
    ["code", "", "", [{ kind: "error", text: "" }]],
    ["raw", "", "", []],
  ]);
});

test("cells, outputs and texts are cut", () => {
  const long = read([code(text("x".repeat(100_000)))]);
  assert.equal(long.cells[0].outputs[0].text, `${"x".repeat(50_000)}\n…`);
  assert.equal(long.isCut, false);
  const cells = read(Array(501).fill({ cell_type: "raw", source: "a" }));
  assert.deepEqual([cells.cells.length, cells.isCut], [500, true]);
  const outputs = read([code(...Array(1500).fill(text("a"))), code(...Array(1500).fill(text("a")))]);
  assert.deepEqual([outputs.cells.map((cell) => cell.outputs.length), outputs.isCut], [[1500, 500], true]);
  const texts = read(Array(300).fill({ cell_type: "raw", source: "x".repeat(40_000) }));
  assert.deepEqual([texts.cells.reduce((sum, cell) => sum + cell.source.length, 0), texts.isCut], [1_000_000, true]);
});
