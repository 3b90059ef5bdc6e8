// A notebook on the page of its file: read and formatted in a worker, so that no content can hold up server or page.
import { gettext } from "#i18n";

const MAX_BYTES = 16 * 2 ** 20;
const MAX_PLAIN_LENGTH = 256 * 1024; // of the text that is shown of what is no notebook
const SILENT_MS = 5000; // without a word of the worker, after which it is ended
const ELEMENTS = new Set("A BLOCKQUOTE BR CODE EM H1 H2 H3 H4 H5 H6 HR LI OL P PRE S STRONG TABLE TBODY TD TH THEAD TR UL".split(" "));
const ATTRIBUTES = new Set(["class", "href", "rel", "start", "target", "title"]);

function made(name, classes, text = "") {
  const element = document.createElement(name);
  element.className = classes;
  element.textContent = text;
  return element;
}

const note = (text) => made("p", "preview-note", text);

function preformatted(classes, text) {
  const element = made("pre", classes, text);
  element.tabIndex = 0;
  return element;
}

function outputElement({ kind, text }, number) {
  if (kind !== "image") return preformatted(`notebook-output${kind === "error" ? " is-error" : ""}`, text);
  const image = made("img", "");
  image.alt = gettext("Output of cell %(number)s", { number });
  image.src = text;
  return image;
}

function cellElement({ kind, source, number, outputs }) {
  if (kind !== "code") return preformatted(kind === "markdown" ? "notebook-plain" : "notebook-source", source);
  const cell = made("div", "notebook-code");
  const index = made("span", "notebook-number", `[${number || " "}]`);
  index.ariaHidden = "true";
  const content = made("div", "");
  const shown = outputs.filter((output) => output.text).map((output) => outputElement(output, number));
  content.append(preformatted("notebook-source", source), ...shown);
  cell.append(index, content);
  return cell;
}

// Returns an element with HTML that a worker has made of Markdown; null if anything else is in it.
export function formatted(html) {
  const cell = made("div", "notebook-markdown");
  cell.append(...new DOMParser().parseFromString(html, "text/html").body.childNodes);
  const isPlain = (element) => ELEMENTS.has(element.nodeName) && [...element.attributes].every(({ name }) => ATTRIBUTES.has(name));
  if (![...cell.querySelectorAll("*")].every(isPlain)) return null;
  for (const block of cell.querySelectorAll("pre")) block.tabIndex = 0;
  return cell;
}

function problemText(problem) {
  if (problem === "json") return gettext("This file is not valid JSON, so it is not a notebook. It is shown as text.");
  if (problem === "format") return gettext("This file has no cells in the format of Jupyter notebooks (version 4). It is shown as text.");
  return gettext("This notebook takes too long to read. It is shown as text.");
}

// One notebook that is being shown.
class NotebookView {
  #place;
  #version;
  #content;
  #worker = null;
  #timer = 0;
  #cells = null; // elements, once they are read
  #waiting = new Set(); // indices of Markdown cells that are not formatted yet
  #note = null; // that some of them stay as they are

  constructor(place) {
    this.#place = place;
    this.#version = place.dataset.notebook;
  }

  get #isCurrent() {
    return this.#place.isConnected && this.#place.dataset.notebook === this.#version;
  }

  async start() {
    try {
      const response = await fetch(this.#place.dataset.source);
      if (!response.ok || Number(response.headers.get("Content-Length")) > MAX_BYTES) throw new Error(`status ${response.status}`);
      this.#content = await response.arrayBuffer();
    } catch {
      this.#place.replaceChildren(note(gettext("The notebook could not be loaded. Reload the page to try again.")));
      this.#end();
      return;
    }
    if (this.#isCurrent) this.#work();
  }

  #work() {
    this.#worker = new Worker(import.meta.resolve("#notebook-worker"), { type: "module" });
    this.#worker.onmessage = ({ data }) => this.#receive(data);
    this.#worker.onerror = () => this.#giveUp();
    const modules = ["#notebook-cells", "#notebook-markdown", "markdown-it"].map((name) => import.meta.resolve(name));
    this.#worker.postMessage({ content: this.#content, modules, imageWord: gettext("image") });
  }

  #receive({ notebook, index, html, isDone }) {
    clearTimeout(this.#timer);
    if (!this.#isCurrent || isDone) {
      this.#end();
      return;
    }
    this.#timer = setTimeout(() => this.#giveUp(), SILENT_MS);
    if (notebook?.problem) this.#showText(notebook.problem);
    else if (notebook) this.#showCells(notebook);
    else if (index !== undefined) this.#showFormatted(index, html);
  }

  #showCells({ cells, isCut }) {
    this.#cells = cells.map(cellElement);
    cells.forEach(({ kind }, index) => kind === "markdown" && this.#waiting.add(index));
    this.#place.replaceChildren(...this.#cells);
    if (!cells.length) this.#place.append(note(gettext("The notebook has no cells.")));
    if (isCut) this.#place.append(note(gettext("The notebook has more than is shown here. Open it in a session to see all.")));
  }

  #showFormatted(index, html) {
    const cell = html === null ? null : formatted(html);
    if (!cell) {
      this.#sayPlain();
      return;
    }
    this.#waiting.delete(index);
    this.#cells[index].replaceWith(cell);
  }

  #giveUp() {
    if (!this.#cells) this.#showText("slow");
    else if (this.#waiting.size) this.#sayPlain();
    this.#end();
  }

  #sayPlain() {
    if (this.#note) return;
    this.#note = note(gettext("Some Markdown of this notebook is too much to format. It is shown as plain text."));
    this.#place.prepend(this.#note);
  }

  #showText(problem) {
    const text = new TextDecoder().decode(this.#content.slice(0, MAX_PLAIN_LENGTH));
    this.#place.replaceChildren(note(problemText(problem)), preformatted("notebook-source", text));
  }

  #end() {
    clearTimeout(this.#timer);
    this.#worker?.terminate();
    this.#place.ariaBusy = "false";
  }
}

// Shows the notebook of the page, if it has one that is not shown yet in the state that the server names.
export function showNotebook() {
  const place = document.querySelector("[data-notebook]");
  if (!place || place.dataset.shown === place.dataset.notebook) return;
  place.dataset.shown = place.dataset.notebook;
  new NotebookView(place).start();
}

// True where an update of the page would replace the notebook by itself; it stays until a newer state has been read.
export function keepsNotebook(old, next) {
  const isSame = old.dataset?.source !== undefined && old.dataset.source === next.dataset?.source;
  if (isSame) old.dataset.notebook = next.dataset.notebook;
  return isSame;
}
