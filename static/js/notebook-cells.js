// Reads a Jupyter notebook (nbformat 4) into cells that are bounded in number and length. No page here.
const MAX_CELLS = 500;
const MAX_OUTPUTS = 2000;
const MAX_TEXT_LENGTH = 50_000; // characters of one source or output
const MAX_TOTAL_LENGTH = 1_000_000; // characters of all of them
const PNG_BEGINNING = "iVBORw0KGgo"; // the signature of PNG files in base64
const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/;
const TERMINAL_CODE = /\x1b\[[0-9;?]*[A-Za-z]/g; // eslint-disable-line no-control-regex

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const objectsOf = (value) => (Array.isArray(value) ? value.filter(isObject) : []);

// Returns text that nbformat stores as a string or a list of lines.
function joined(value) {
  return (Array.isArray(value) ? value : [value]).filter((part) => typeof part === "string").join("");
}

// Counts what may still be shown; `isCut` when something was left out.
class Room {
  outputs = MAX_OUTPUTS;
  characters = MAX_TOTAL_LENGTH;
  isCut = false;

  // Returns the text without terminal codes, cut to what may be shown.
  text(value) {
    const whole = joined(value);
    const length = Math.min(MAX_TEXT_LENGTH, this.characters);
    const shown = whole.slice(0, length);
    this.characters -= shown.length;
    if (whole.length > MAX_TEXT_LENGTH && length === MAX_TEXT_LENGTH) return `${shown.replace(TERMINAL_CODE, "")}\n…`;
    if (shown.length < whole.length) this.isCut = true;
    return shown.replace(TERMINAL_CODE, "");
  }
}

// Returns a data URI for base64 text that begins as a PNG file does, else "".
function png(encoded) {
  const content = joined(encoded).replace(/\s+/g, "");
  return content.startsWith(PNG_BEGINNING) && BASE64.test(content) ? `data:image/png;base64,${content}` : "";
}

function outputOf(output, room) {
  if (output.output_type === "stream") return { kind: "text", text: room.text(output.text) };
  if (output.output_type === "error") {
    const trace = Array.isArray(output.traceback) ? output.traceback : [];
    const lines = trace.filter((line) => typeof line === "string").join("\n");
    return { kind: "error", text: room.text(lines || output.evalue) };
  }
  if (!isObject(output.data)) return null;
  const image = png(output.data["image/png"]);
  return image ? { kind: "image", text: image } : { kind: "text", text: room.text(output.data["text/plain"]) };
}

function cellOf(cell, room) {
  const kind = ["markdown", "code"].includes(cell.cell_type) ? cell.cell_type : "raw";
  const source = room.text(cell.source);
  if (kind !== "code") return { kind, source, number: "", outputs: [] };
  const known = objectsOf(cell.outputs);
  if (known.length > room.outputs) room.isCut = true;
  const shown = known.slice(0, room.outputs);
  room.outputs -= shown.length;
  const number = Number.isInteger(cell.execution_count) ? String(cell.execution_count) : "";
  return { kind, source, number, outputs: shown.map((output) => outputOf(output, room)).filter(Boolean) };
}

// Returns { cells, isCut } of the text of a notebook, or { problem }: "json" or "format".
export function readNotebook(text) {
  let data;
  try {
    data = JSON.parse(text);
  } catch {
    return { problem: "json" };
  }
  if (!isObject(data) || !Array.isArray(data.cells)) return { problem: "format" };
  const known = objectsOf(data.cells);
  const room = new Room();
  const cells = known.slice(0, MAX_CELLS).map((cell) => cellOf(cell, room));
  return { cells, isCut: room.isCut || known.length > MAX_CELLS };
}
