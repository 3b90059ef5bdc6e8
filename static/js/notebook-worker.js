// Reads a notebook and formats its Markdown away from the page, which ends this worker where that takes too long.
const MAX_HTML_LENGTH = 400_000; // of one cell
const MAX_TOTAL_HTML_LENGTH = 2_000_000;

// Sends the HTML of each Markdown cell, or null where it is too much to show.
function sendFormatted(cells, render) {
  let left = MAX_TOTAL_HTML_LENGTH;
  cells.forEach((cell, index) => {
    if (cell.kind !== "markdown") return;
    const html = render(cell.source);
    const fits = html.length <= Math.min(MAX_HTML_LENGTH, left);
    if (fits) left -= html.length;
    postMessage({ index, html: fits ? html : null });
  });
}

// Workers have no import map, so the page names the addresses of the modules.
async function work({ content, modules, imageWord }) {
  const [{ readNotebook }, { markdownRenderer }, { default: MarkdownIt }] = await Promise.all(modules.map((address) => import(address)));
  const text = new TextDecoder("utf-8", { fatal: true });
  postMessage({ isLoaded: true });
  let notebook;
  try {
    notebook = readNotebook(text.decode(content));
  } catch {
    notebook = { problem: "json" }; // not UTF-8
  }
  postMessage({ notebook });
  if (notebook.cells) sendFormatted(notebook.cells, markdownRenderer(MarkdownIt, imageWord));
  postMessage({ isDone: true });
}

addEventListener("message", ({ data }) => work(data).catch(reportError));
