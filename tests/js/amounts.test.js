import assert from "node:assert/strict";
import test from "node:test";
import { GIB, MIB, gpuMemoryHint, hint, read, scaleOf, write } from "#amounts";

test("a size has a unit", () => {
  assert.ok(Number.isNaN(read.size("4")));
  assert.equal(read.size(" 1.5 g "), 1.5 * GIB);
  assert.equal(read.size("512M"), 512 * MIB);
  assert.equal(read.size("2 TiB"), 2048 * GIB);
  assert.equal(read.size("1 kb"), 1024);
  assert.equal(read.size("700b"), 700);
});

test("what is no amount is not a number", () => {
  for (const text of ["", "four", "-1", "1.2.3", "4 gigs"]) assert.ok(Number.isNaN(read.size(text)), text);
  for (const text of ["", "1.5", "-1", "one"]) assert.ok(Number.isNaN(read.whole(text)), text);
  assert.ok(Number.isNaN(read.fgpu("half")));
});

test("no fGPU is none, and others are thousandths", () => {
  assert.equal(read.fgpu("  "), 0);
  assert.equal(read.fgpu("0.25"), 250);
});

test("amounts are written with two decimals at most", () => {
  assert.equal(write.size(1.5 * GIB), "1.5 GiB");
  assert.equal(write.size(64 * MIB), "64 MiB");
  assert.equal(write.size(GIB / 3), "341.33 MiB");
  assert.equal(write.size(1536), "1.5 KiB");
  assert.equal(write.size(3 * 1024 * GIB), "3 TiB");
  assert.equal(write.size(12), "12 B");
  assert.equal(write.fgpu(2000), "2");
  assert.equal(write.whole(3), "3");
});

test("what a slider sets reads back within one step of it", () => {
  for (const [name, largest] of [["cpu", 8], ["count", 50], ["fgpu", 8000], ["memory", 256 * GIB]]) {
    const { from, to, toAmount, fromAmount } = scaleOf(name, largest);
    assert.ok(toAmount(to) <= largest, name);
    for (let step = from; step <= to; step += 1) {
      assert.ok(Math.abs(fromAmount(toAmount(step)) - step) <= 1, `${name} ${step}`);
    }
  }
});

test("a slider without room stands still at its least amount", () => {
  for (const name of ["cpu", "fgpu", "memory"]) {
    const { from, to } = scaleOf(name, 0);
    assert.equal(from, to, name);
  }
});

test("a hint names the group, the policy and the environment", () => {
  const group = { perGpu: 4, device: "GPU", fgpu: 8000 };
  assert.equal(
    hint("fgpu", "fgpu", { group, largest: 8000, least: 250, left: 1500 }),
    "1 fGPU is 1/4 of one GPU here · up to 8 per session · 1.5 left in your policy · this environment needs 0.25",
  );
  assert.equal(gpuMemoryHint(20 * GIB), "this environment needs 20 GiB of GPU memory");
  assert.equal(gpuMemoryHint(0), "");
  assert.equal(hint("cpu", "whole", { group: undefined, largest: 64, least: 1, left: null }), "");
  assert.equal(hint("memory", "size", { group: { memory: GIB }, largest: GIB, least: 64 * MIB }), "up to 1 GiB per session");
});

test("a hint on sessions tells how many run at once", () => {
  assert.equal(hint("count", "whole", { largest: 20, left: 2 }), "up to 20 at once · your policy lets 2 more run now, the others wait");
  assert.equal(hint("count", "whole", { largest: 50, left: null }), "up to 50 at once");
});
