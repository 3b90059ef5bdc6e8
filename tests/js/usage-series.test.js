import assert from "node:assert/strict";
import { test } from "node:test";
import { GIB } from "#amounts";
import { PLOTS, columns, timeMark, top } from "#usage-series";

const STATS = { step: 10, cpu_milli: 2000, memory: 4 * GIB, gpu_memory_share: 2 * GIB, gpu_memory_cards: 8 * GIB };
const POINT = { at: "2026-01-01T10:00:00Z", cpu_milli: 1500, memory: GIB, received: 2_500_000, sent: 300, gpu_memory: GIB, gpu_utilisation: 20, gpu_share_utilisation: 80 };
const at = (seconds) => new Date(Date.parse(POINT.at) + seconds * 1000).toISOString();

test("a gap in the records is a point without values", () => {
  const points = [0, 10, 90, 100].map((seconds) => ({ ...POINT, at: at(seconds) }));
  const [moments, values] = columns({ ...STATS, points }, PLOTS.cpu.readers);
  assert.deepEqual(moments.map((moment) => moment - moments[0]), [0, 10, 50, 90, 100]);
  assert.deepEqual(values, [1.5, 1.5, null, 1.5, 1.5]);
});

test("the first points have a minute of time axis", () => {
  const [moments, values] = columns({ ...STATS, points: [POINT] }, PLOTS.cpu.readers);
  assert.deepEqual(moments.map((moment) => moment - moments[0]), [0, 60]);
  assert.deepEqual(values, [null, 1.5]);
});

test("no points are no columns", () => {
  assert.deepEqual(columns({ ...STATS, points: [] }, PLOTS.network.readers), [[], [], []]);
});

test("use is told of the share and of the whole GPU", () => {
  assert.equal(PLOTS.gpu.text(POINT, STATS), "80 % of your share, 20 % of the GPU");
  assert.equal(PLOTS.gpu_memory.text(POINT, STATS), "1 GiB of your 2 GiB; the GPU has 8 GiB");
  const whole = { ...STATS, gpu_memory_share: 8 * GIB };
  assert.equal(PLOTS.gpu.text(POINT, whole), "20 % of the GPU");
  assert.equal(PLOTS.gpu_memory.text(POINT, whole), "1 GiB of 8 GiB");
});

test("CPU, memory and network have their units", () => {
  assert.equal(PLOTS.cpu.text(POINT, STATS), "1.5 of 2 cores");
  assert.equal(PLOTS.cpu.text(POINT, { ...STATS, cpu_milli: 1000 }), "1.5 of 1 core");
  assert.equal(PLOTS.memory.text({ ...POINT, memory: 300 * 2 ** 20 }, STATS), "300 MiB of 4 GiB");
  assert.equal(PLOTS.network.text(POINT, STATS), "2.38 MiB/s received, 300 B/s sent");
});

test("what was not measured is said", () => {
  const unknown = { at: POINT.at, cpu_milli: null, memory: null, received: null, sent: null, gpu_memory: null, gpu_utilisation: null };
  for (const { text, readers } of Object.values(PLOTS)) {
    assert.equal(text(unknown, STATS), "not measured");
    assert.ok(readers.every((read) => [null, undefined].includes(read(unknown))));
  }
});

test("scales end at the limit, above what was seen, or at the least", () => {
  assert.deepEqual([top(4, 1), top(4, 10), top(0, 0), top(0, 20, 1000)], [4, 10.5, 1, 1000]);
});

test("marks name seconds, minutes or days by the length that is shown", () => {
  const moment = Date.parse(POINT.at) / 1000;
  const lengths = [60, 3600, 200_000].map((span) => timeMark(moment, span));
  assert.equal(new Set(lengths).size, 3);
});
