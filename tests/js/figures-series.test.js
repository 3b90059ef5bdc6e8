import assert from "node:assert/strict";
import { test } from "node:test";
import { FIGURES } from "#figures-series";

const POINT = {
  at: "2026-01-01T10:00:00Z", requests_per_second: 1.25, p50_seconds: 0.05, p95_seconds: 2.5, errors: 3, rejected: 1, outstanding: 2.04, waiting: 0,
  replicas: 1.5, gpu_percent: 61.7, fgpu_hours: 0.0123456, fgpu_hours_per_1000_requests: 0.5,
};
const QUIET = { ...POINT, p50_seconds: null, p95_seconds: null, gpu_percent: null, fgpu_hours_per_1000_requests: null };

test("each figure is told with its unit", () => {
  const told = Object.fromEntries(Object.entries(FIGURES).slice(3).map(([name, plot]) => [name, plot.text(POINT)]));
  assert.deepEqual(told, {
    requests: "1.25 requests a second",
    durations: "half within 0.05 s, 95 % within 2.5 s",
    errors: "3 errors, 1 turned away",
    queue: "2 under way, 0 waiting",
    replicas: "1.5 on average",
    gpu_use: "62 % of what they hold",
    fgpu_hours: "0.0123 fGPU hours",
    cost: "0.5 fGPU hours for 1,000 requests",
  });
});

test("what is lent is told of all that there is", () => {
  const point = { at: POINT.at, gpus: 2.25, waiting: 3 };
  assert.equal(FIGURES.held_gpus.text(point, { gpus: 8 }), "2.3 of 8 on average");
  assert.equal(FIGURES.held_gpus.limit({ gpus: 8 }), 8);
  assert.equal(FIGURES.held_cores.text({ cores: 12 }, { cores: 64 }), "12 of 64 on average");
  assert.equal(FIGURES.group_waiting.text(point), "3 on average");
});

test("what is not known is told as such, and is no zero", () => {
  assert.equal(FIGURES.durations.text(QUIET), "no requests");
  assert.equal(FIGURES.gpu_use.text(QUIET), "not measured");
  assert.equal(FIGURES.cost.text(QUIET), "no requests");
  assert.deepEqual(FIGURES.durations.readers.map((read) => read(QUIET)), [null, null]);
});
