// What a number of fGPU is of the GPUs of a group.
import assert from "node:assert/strict";
import test from "node:test";
import { GIB } from "#amounts";
import { cellsOf, memoryText, shareText } from "#gpu-share";

const group = (perGpu, ...sizes) => ({ perGpu, device: "GPU", divides: true, gpus: sizes.map((size) => ({ memory: size * GIB })) });

test("a part is told in memory and time", () => {
  assert.equal(shareText(500, group(2, 8)), "2 GiB of 8 GiB of a GPU, 25 % of its time");
  assert.equal(shareText(330, group(1, 80)), "26.4 GiB of 80 GiB of a GPU, 33 % of its time");
});

test("whole GPUs are counted, and a part of another is added", () => {
  assert.equal(shareText(1000, group(1, 8)), "1 whole GPU with 8 GiB");
  assert.equal(shareText(4000, group(2, 8)), "2 whole GPUs with 8 GiB each");
  assert.equal(shareText(2500, group(2, 8)), "1 whole GPU and 2 GiB of 8 GiB of another, 25 % of its time");
});

test("different GPUs of a group are all named", () => {
  assert.equal(shareText(500, group(1, 80, 40, 40)), "40 GiB of 80 GiB / 20 GiB of 40 GiB of a GPU, 50 % of its time");
});

test("devices of other vendors have their names, and perhaps no memory", () => {
  assert.equal(shareText(2000, { ...group(1, 192), device: "AMD GPU" }), "2 whole AMD GPUs with 192 GiB each");
  assert.equal(shareText(1000, { ...group(1, 0), device: "NPU" }), "1 whole NPU");
  assert.equal(shareText(500, { ...group(1, 192), divides: false }), "");
});

test("without GPUs, or without a share, nothing is said", () => {
  assert.equal(shareText(500, group(1)), "");
  assert.equal(shareText(0, group(1, 8)), "");
  assert.equal(shareText(NaN, group(1, 8)), "");
});

test("the picture has whole GPUs first, and eight at most", () => {
  assert.deepEqual(cellsOf(2500, 1), [1, 1, 0.5]);
  assert.deepEqual(cellsOf(500, 2), [0.25]);
  assert.equal(cellsOf(64_500, 1).length, 8);
});

test("GPU memory is told as a share of each kind of GPU", () => {
  const gpus = [["A100 80", 80], ["A100 40", 40], ["RTX 3060", 12]].map(([name, size]) => ({ name, memory: size * GIB }));
  const words = "0.2 fGPU of A100 80 (80 GiB) · 0.4 fGPU of A100 40 (40 GiB) · does not fit RTX 3060";
  assert.equal(memoryText(16 * GIB, 0, { perGpu: 1, gpus }), words);
  assert.equal(memoryText(1, 500, { perGpu: 1, gpus: gpus.slice(0, 1) }), "0.5 fGPU of A100 80 (80 GiB)");
  assert.equal(memoryText(GIB, 0, { perGpu: 2, gpus: [{ ...gpus[0], isWhole: true }] }), "2 fGPU of A100 80 (80 GiB)");
  assert.equal(memoryText(GIB, 0, { perGpu: 1, gpus: [] }), "");
});
