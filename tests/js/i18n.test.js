import assert from "node:assert/strict";
import test from "node:test";

globalThis.translations = {
  plural: () => 0,
  texts: { "Copied %(name)s": ["%(name)s 복사됨"], "%(count)s file": ["파일 %(count)s개"], "100 %": ["백 %"] },
};
const { gettext, ngettext } = await import("#i18n");

test("a text is translated and its placeholders are filled", () => {
  assert.equal(gettext("Copied %(name)s", { name: "a.txt" }), "a.txt 복사됨");
  assert.equal(gettext("100 %"), "백 %");
  assert.equal(gettext("%(share)s %% of %(gpu)s", { share: 50, gpu: "A100" }), "50 % of A100");
});

test("a text without translation stays English, in the form for its number", () => {
  assert.equal(gettext("Not translated"), "Not translated");
  assert.equal(ngettext("%(count)s core", "%(count)s cores", 1), "1 core");
  assert.equal(ngettext("%(count)s core", "%(count)s cores", 2), "2 cores");
  assert.equal(ngettext("%(count)s core of %(host)s", "%(count)s cores of %(host)s", 3, { host: "a" }), "3 cores of a");
});

test("a number takes the form that the language has for it", () => {
  assert.equal(ngettext("%(count)s file", "%(count)s files", 1), "파일 1개");
  assert.equal(ngettext("%(count)s file", "%(count)s files", 7), "파일 7개");
});
