import assert from "node:assert/strict";
import test from "node:test";
import { detailOf, firstBytes, refusalText, TrialError, TrialTarget } from "#trial-target";

const REFUSED = { status: 401, headers: { "WWW-Authenticate": 'Bearer error="invalid_token"' } };

// Lets fetch respond from `responses` in turn for the address, and number the tokens that are asked for.
function serve(t, ...responses) {
  const seen = [];
  let tokens = 0;
  t.mock.method(globalThis, "fetch", async (url, init) => {
    if (url === "/token/") return Response.json({ token: `gpd_${(tokens += 1)}` });
    seen.push(init.headers);
    const next = responses.shift();
    if (next instanceof Error) throw next;
    return new Response("", next);
  });
  return seen;
}

const target = () => new TrialTarget({ url: "http://a", token: "/token/" }, "csrf");

test("a token is made once and sent with each request", async (t) => {
  const seen = serve(t, { status: 200 }, { status: 200 });
  const one = target();
  await one.send("/", {});
  await one.send("/", { headers: [["authorization", "Basic eA=="]] });
  assert.equal(seen[0].get("Authorization"), "Bearer gpd_1");
  assert.deepEqual([seen[1].get("Authorization"), seen[1].get("X-Api-Key")], ["Basic eA==", "gpd_1"]);
});

test("an old token that is refused is replaced once", async (t) => {
  const seen = serve(t, { status: 200 }, REFUSED, { status: 200 });
  const one = target();
  await one.send("/", {});
  await one.send("/", {});
  assert.deepEqual(seen.map((headers) => headers.get("Authorization")), ["Bearer gpd_1", "Bearer gpd_1", "Bearer gpd_2"]);
  serve(t, REFUSED, REFUSED);
  assert.equal((await target().send("/", {})).status, 401);
});

test("the app's own refusal is shown as it is", async (t) => {
  serve(t, { status: 401 });
  assert.equal((await target().send("/", {})).status, 401);
});

test("an address without an answer is said in words", async (t) => {
  serve(t, new TypeError("Failed to fetch"));
  await assert.rejects(target().send("/", {}), (error) => error instanceof TrialError && error.message.includes("http://a"));
});

test("refusals say what is the matter and when to come again", async () => {
  const problem = JSON.stringify({ title: "Busy", detail: "As many wait as may." });
  const text = await refusalText(new Response(problem, { status: 429, headers: { "Retry-After": "2" } }));
  assert.equal(text, "It takes no more requests now. As many wait as may. Send it again in 2 seconds.");
  assert.equal(await refusalText(new Response("", { status: 502 })), "It answered with status 502.");
});

test("details are found in errors of any kind", () => {
  assert.equal(detailOf('{"error": {"message": "a"}}'), "a");
  assert.equal(detailOf('{"error": "b"}'), "b");
  assert.equal(detailOf('{"detail": "c", "title": "t"}'), "c");
  assert.equal(detailOf("plain\nmore"), "plain");
  assert.equal(detailOf("<!doctype html>"), "");
  assert.equal(detailOf("null"), "");
});

test("no more of a body is read than asked", async () => {
  const cut = await firstBytes(new Response("x".repeat(100)), 10);
  assert.deepEqual([cut.bytes.length, cut.isAll], [10, false]);
  const all = await firstBytes(new Response("x".repeat(10)), 10);
  assert.deepEqual([all.bytes.length, all.isAll], [10, true]);
});
