// What the launch page says about where an image is.
import assert from "node:assert/strict";
import test from "node:test";

import { presenceText } from "#image-text";

const told = (have, total, rest = {}) => presenceText({ have, total, size: null, isPulled: true, ...rest });

test("on every host nothing is to be pulled", () => {
  assert.equal(told(1, 1), "On the host already.");
  assert.equal(told(3, 3, { size: 5e9 }), "On all 3 hosts already.");
});

test("what is missing is told with its size", () => {
  assert.equal(told(0, 1, { size: 52 * 2 ** 20 }), "Not on the host yet; it is pulled first, about 52 MiB.");
  assert.equal(told(1, 3, { size: 2.14 * 2 ** 30 }), "On 1 of 3 hosts already; the others pull it first, about 2.14 GiB.");
  assert.equal(told(0, 2), "Not on the hosts yet; it is pulled first.");
});

test("an image that no registry has is not pulled", () => {
  assert.equal(told(1, 2, { isPulled: false }), "On 1 of 2 hosts already.");
});

test("without ready hosts nothing is said", () => {
  assert.equal(told(0, 0), "");
});
