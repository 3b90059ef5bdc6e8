import assert from "node:assert/strict";
import test from "node:test";
import { GIB, clock, read, textOf } from "#gpu-text";

const AT = "2030-01-31T12:34:00Z";
const point = { at: AT, gpu_memory: 1.5 * GIB, gpu_utilisation: 33.4 };
const when = clock(Date.parse(AT) / 1000);

test("memory is told in GiB, and of how much where that is known", () => {
  assert.equal(textOf("memory", point, 4 * GIB), `1.50 of 4.00 GiB at ${when}`);
  assert.equal(textOf("memory", point, null), `1.50 GiB at ${when}`);
});

test("the devices' time is told in whole percent", () => {
  assert.equal(textOf("utilisation", point, 4 * GIB), `33 % at ${when}`);
});

test("what the devices do not tell is no zero", () => {
  const unknown = { ...point, gpu_memory: null, gpu_utilisation: null };
  for (const series of ["memory", "utilisation"]) {
    assert.equal(read[series](unknown), null);
    assert.equal(textOf(series, unknown, null), "not measured per session");
  }
});
