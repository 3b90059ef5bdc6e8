// What handles bytes of users takes about four times as long for four times as many, whatever they are.
import assert from "node:assert/strict";
import { test } from "node:test";
import MarkdownIt from "markdown-it/browser";
import { located, occurrences } from "#log-search";
import { readNotebook } from "#notebook-cells";
import { markdownRenderer } from "#notebook-markdown";
import { walk } from "#upload-entries";
import { rowsOf } from "#variables-text";

const MOST = 8; // times the time for four times the input, where squares take 16: between them on a busy machine, too
const ROUNDS = 30;
const render = markdownRenderer(MarkdownIt, "image");

function cpuMs(run, input) {
  const before = process.cpuUsage();
  run(input);
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}

// Returns the least ratio of times that were taken one after the other, up to the first that is at most MOST.
function growthOf(make, size, run) {
  const [small, large] = [make(size), make(4 * size)];
  run(small); // compiled from here on
  let ratio = Infinity;
  for (let round = 0; round < ROUNDS && ratio > MOST; round += 1) {
    const least = Math.min(...[1, 2, 3].map(() => cpuMs(run, small)));
    ratio = Math.min(ratio, cpuMs(run, large) / least);
  }
  return ratio;
}

const notebook = (cells) => JSON.stringify({ cells });
const stream = (text) => ({ cell_type: "code", outputs: [{ output_type: "stream", text }] });
const CASES = {
  "Markdown: brackets": [(size) => "[".repeat(size), 10_000, render],
  "Markdown: images": [(size) => "![".repeat(size), 10_000, render],
  "Markdown: brackets closed": [(size) => "[".repeat(size) + "]".repeat(size), 10_000, render],
  "Markdown: links begun": [(size) => "[a](".repeat(size), 10_000, render],
  "Markdown: titles begun": [(size) => '[a](b "'.repeat(size), 5_000, render],
  "Markdown: stars": [(size) => "*a ".repeat(size), 10_000, render],
  "Markdown: stars and lines": [(size) => "a**b_".repeat(size), 10_000, render],
  "Markdown: backticks": [(size) => Array.from({ length: Math.sqrt(2 * size) }, (_, index) => "`".repeat(index)).join(" "), 200_000, render],
  "Markdown: quotes": [(size) => ">".repeat(size), 100_000, render],
  "Markdown: lists": [(size) => "- ".repeat(size), 100_000, render],
  "Markdown: lines of a list": [(size) => "* a\n".repeat(size), 10_000, render],
  "Markdown: tags": [(size) => "<a@".repeat(size), 10_000, render],
  "Markdown: references": [(size) => "[a]: /b\n".repeat(size), 5_000, render],
  "Markdown: tables": [(size) => `${"|a".repeat(200)}\n${"|-".repeat(200)}\n${"|\n".repeat(size)}`, 50, render],
  "notebook: cells": [(size) => notebook(Array(size).fill({ cell_type: "markdown", source: "a" })), 50_000, readNotebook],
  "notebook: lines": [(size) => notebook([stream(Array(size).fill("a\n"))]), 50_000, readNotebook],
  "notebook: terminal codes": [(size) => notebook([stream("\x1b[0".repeat(size))]), 50_000, readNotebook],
  "notebook: image": [(size) => notebook([{ cell_type: "code", outputs: [{ data: { "image/png": `iVBORw0KGgo${"=\n".repeat(size)}` } }] }]), 100_000, readNotebook],
  "notebook: nesting": [(size) => "[".repeat(size), 100_000, readNotebook],
  "log: matches in pieces": [(size) => Array(size).fill(1), 4_000, (lengths) => located(lengths, occurrences("a".repeat(lengths.length), "a", Infinity).flat())],
  "variables: lines": [(size) => "A=b\n".repeat(size), 10_000, rowsOf],
  "variables: spaces": [(size) => `export${" ".repeat(size)}`, 100_000, rowsOf],
  "variables: quotes": [(size) => `A="${"'".repeat(size)}`, 100_000, rowsOf],
};

for (const [name, [make, size, run]] of Object.entries(CASES)) {
  test(name, () => assert.ok(growthOf(make, size, run) <= MOST));
}

test("a dropped directory may have any number of files", async () => {
  const children = Array.from({ length: 200_000 }, (_, index) => ({ name: `${index}`, isFile: true, file: (done) => done({}) }));
  const parts = [children, []];
  const entry = { name: "a", isDirectory: true, createReader: () => ({ readEntries: (done) => done(parts.shift()) }) };
  assert.equal((await walk([entry])).files.length, 200_000);
});
