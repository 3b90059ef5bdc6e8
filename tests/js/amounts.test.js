import assert from "node:assert/strict";
import test from "node:test";
import { GIB, MIB, hint, objection, read, scaleOf, summary, write } from "#amounts";

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
  const group = { perGpu: 4, fgpu: 8000 };
  assert.equal(
    hint("fgpu", "fgpu", { group, largest: 8000, least: 250, left: 1500 }),
    "1 fGPU is 1/4 of a GPU here · up to 8 per session · 1.5 left in your policy · this environment needs 0.25",
  );
  assert.equal(hint("cpu", "whole", { group: undefined, largest: 64, least: 1, left: null }), "");
  assert.equal(hint("memory", "size", { group: { memory: GIB }, largest: GIB, least: 64 * MIB }), "up to 1 GiB per session");
});

test("the order is summed up in one line", () => {
  const order = { environment: "Python", version: "3.11", place: "Lab", cpu: 1, memory: GIB, shared: 64 * MIB, fgpu: 0, count: 1 };
  assert.equal(summary(order), "Python 3.11 · 1 core · 1 GiB RAM · 64 MiB shared, in Lab");
  assert.equal(
    summary({ ...order, cpu: 2, fgpu: 500, count: 3 }),
    "3 × Python 3.11 · 2 cores · 1 GiB RAM · 64 MiB shared · 0.5 fGPU, in Lab",
  );
});

test("too little for the environment is said before too much for the group", () => {
  const amounts = { cpu: 1, memory: 2 * GIB, fgpu: 9000 };
  const group = { cpu: 8, memory: GIB, fgpu: 8000 };
  assert.equal(objection(amounts, { least: { cpu: 2, memory: GIB }, group }), "This environment needs at least 2 CPU.");
  assert.equal(objection(amounts, { group }), "More than one session can have here (RAM, fGPU).");
  assert.equal(objection(amounts, {}), "");
});
