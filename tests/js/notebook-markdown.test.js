import assert from "node:assert/strict";
import { test } from "node:test";
import MarkdownIt from "markdown-it/browser";
import { markdownRenderer } from "#notebook-markdown";

const render = markdownRenderer(MarkdownIt, "image");

test("Markdown becomes HTML", () => {
  assert.match(render("# A *title*\n\n| a |\n|---|\n| 1 |"), /<h1>A <em>title<\/em><\/h1>[^]*<td>1<\/td>/);
});

test("Markdown never becomes foreign HTML", () => {
  const cases = [
    ["<script>alert(1)</script>", "<script", "&lt;script&gt;"],
    ['a <img src=x onerror="alert(1)">', "<img", "&lt;img"],
    ["[press](javascript:alert(1))", "href", "javascript:alert(1)"],
    ["[press](JaVaScRiPt:alert(1))", "href", "press"],
    ["[press](data:text/html,<script>)", "href", "press"],
    ["[press](/accounts/logout/)", "href", "press"],
    ["[press](//evil.example/)", "href", "press"],
    ["![a <b>picture</b>](https://evil.example/pixel.png)", "<img", "[image: a &lt;b&gt;picture&lt;/b&gt;]"],
    ["![](https://evil.example/pixel.png)", "<img", "[image]"],
    ["```python\n<script>\n```", "<script", "&lt;script&gt;"],
    ['```"><script>\nx\n```', "<script", "&lt;script&gt;"],
    ['[a](https://example.org/ "\\"><script>")', "<script", "https://example.org/"],
    ["<!-- a comment -->", "<!--", "&lt;!--"],
    ["| a |\n|:-:|\n| 1 |", "style", 'class="text-center"'],
  ];
  for (const [source, hidden, shown] of cases) {
    assert.ok(!render(source).includes(hidden), source);
    assert.ok(render(source).includes(shown), source);
  }
});

test("links open elsewhere without a referrer", () => {
  assert.match(render("[a](https://example.org/)"), /<a href="https:\/\/example.org\/" target="_blank" rel="noopener noreferrer nofollow">a<\/a>/);
});
