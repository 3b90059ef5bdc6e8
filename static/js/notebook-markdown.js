// Markdown of strangers as HTML of few elements: raw HTML is text, links lead to the web alone, images are not loaded.
const WEB_LINK = /^(?:https?:\/\/|mailto:)/i;
const ALIGNMENTS = { "text-align:center": "text-center", "text-align:right": "text-end" };

function link(tokens, index, options, env, self) {
  tokens[index].attrSet("target", "_blank");
  tokens[index].attrSet("rel", "noopener noreferrer nofollow");
  return self.renderToken(tokens, index, options);
}

// A column's alignment is a class, since the pages' policy refuses style attributes.
function tableCell(tokens, index, options, env, self) {
  const alignment = ALIGNMENTS[tokens[index].attrGet("style")];
  tokens[index].attrs = alignment ? [["class", alignment]] : null;
  return self.renderToken(tokens, index, options);
}

// Returns a function from Markdown to HTML; `imageWord` stands before the description of an image.
export function markdownRenderer(MarkdownIt, imageWord) {
  const markdown = new MarkdownIt({ html: false, linkify: false });
  const { escapeHtml } = markdown.utils;
  markdown.validateLink = (address) => WEB_LINK.test(address);
  markdown.renderer.rules.link_open = link;
  markdown.renderer.rules.th_open = tableCell;
  markdown.renderer.rules.td_open = tableCell;
  markdown.renderer.rules.image = (tokens, index) => `<em>[${escapeHtml([imageWord, tokens[index].content].filter(Boolean).join(": "))}]</em>`;
  return (source) => markdown.render(source);
}
