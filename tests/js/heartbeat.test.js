// The heartbeat of a connection, on a clock of its own.
import assert from "node:assert/strict";
import test from "node:test";
import { Heartbeat } from "#heartbeat";

function running() {
  const world = { now: 0, told: [], asked: 0 };
  const tell = (what) => () => world.told.push(`${what} ${world.now}`);
  const handlers = { ask: () => (world.asked += 1), silent: tell("silent"), alive: tell("alive"), dead: tell("dead") };
  const heartbeat = new Heartbeat(handlers, () => world.now);
  heartbeat.start();
  world.pass = (milliseconds, answers = () => false) => {
    for (const end = world.now + milliseconds; world.now < end; ) {
      world.now += 250;
      const before = world.asked;
      heartbeat.tick();
      if (world.asked > before && answers()) heartbeat.heard();
    }
  };
  return { world, heartbeat };
}

test("an end that answers is asked once a second and stays alive", () => {
  const { world, heartbeat } = running();
  world.pass(60_000, () => true);
  heartbeat.stop();
  assert.deepEqual(world.told, []);
  assert.ok(world.asked >= 40 && world.asked <= 60, String(world.asked));
});

test("silence is noticed within three seconds, and given up later", () => {
  const { world, heartbeat } = running();
  world.pass(10_000);
  heartbeat.stop();
  assert.deepEqual(world.told, ["silent 2500", "dead 6000"]);
});

test("an answer ends the silence", () => {
  const { world, heartbeat } = running();
  world.pass(3000);
  heartbeat.heard();
  world.pass(1000);
  heartbeat.stop();
  assert.deepEqual(world.told, ["silent 2500", "alive 3000"]);
});

test("silence does not matter while nobody looks, and an answer must come soon after", () => {
  const { world, heartbeat } = running();
  heartbeat.pause();
  world.pass(60_000);
  assert.equal(world.asked, 0);
  heartbeat.resume();
  assert.equal(world.asked, 1);
  world.pass(2000);
  heartbeat.stop();
  assert.deepEqual(world.told, ["silent 61250"]);
});

test("a page that was held up asks before it complains", () => {
  const { world, heartbeat } = running();
  world.now += 30_000;
  heartbeat.tick();
  assert.equal(world.asked, 1);
  heartbeat.heard();
  world.pass(2000, () => true);
  heartbeat.stop();
  assert.deepEqual(world.told, []);
});

test("without a network it is silent at once", () => {
  const { world, heartbeat } = running();
  world.pass(250);
  heartbeat.expectNothing();
  heartbeat.expectNothing();
  heartbeat.stop();
  assert.deepEqual(world.told, ["silent 250"]);
});
