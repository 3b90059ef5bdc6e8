import assert from "node:assert/strict";
import test from "node:test";
import { usesOf } from "#session-use";

const GIB = 2 ** 30;
const held = { cpu: 2, memory: 4 * GIB, gpu: 250, gpuMemory: 2 * GIB };

test("use is told in percent of the session's own share", () => {
  assert.deepEqual(usesOf([500, GIB, 20, GIB], held), {
    cpu: { percent: 25, figure: "0.5" },
    memory: { percent: 25, figure: "1 GiB" },
    gpu: { percent: 80, figure: "80 %" }, // 20 % of the card is 80 % of a quarter of it
    "gpu-memory": { percent: 50, figure: "1 GiB" },
  });
});

test("what is not known is left out", () => {
  assert.deepEqual(usesOf([null, null, null, null], held), {});
  assert.deepEqual(usesOf([null, null, 20, GIB], { ...held, gpu: 0, gpuMemory: 0 }), {});
});

test("more than the share shows as all of it", () => {
  assert.equal(usesOf([2600, null, 90, null], held).cpu.percent, 100);
  assert.equal(usesOf([2600, null, 90, null], held).gpu.percent, 100);
});
