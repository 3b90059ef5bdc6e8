// What a key of the pages does: "launch", "undo", "search", "keys", or "" if it is not for us.
const ACTIONS = { n: "launch", z: "undo", "/": "search", "?": "keys" };
const TYPES_THAT_CLICK = new Set(["button", "checkbox", "color", "file", "image", "radio", "range", "reset", "submit"]);

// `event` is a keydown; `target` what has the focus, as {tag, type, isEditable}.
export function actionOf(event, target, { isDialogOpen = false } = {}) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.repeat || isDialogOpen) return "";
  if (takesText(target)) return "";
  return ACTIONS[latinKey(event)] ?? "";
}

// The key of a keydown; where a layout of other letters is on, what stands at its place on a Latin keyboard.
export function latinKey({ key, code = "" }) {
  const isLetterOfOthers = key.length === 1 && key > "~" && /^Key[A-Z]$/.test(code);
  return isLetterOfOthers ? code.at(-1).toLowerCase() : key;
}

// Whether a keydown opens the palette: Command-K on a Mac, where Ctrl-K deletes to the end of the line, else Ctrl-K.
export function isPaletteKey(event, isMac) {
  const isHeld = event.metaKey === isMac && event.ctrlKey === !isMac && !event.altKey && !event.shiftKey;
  return isHeld && latinKey(event).toLowerCase() === "k";
}

function takesText({ tag, type, isEditable }) {
  if (isEditable || tag === "TEXTAREA" || tag === "SELECT") return true;
  return tag === "INPUT" && !TYPES_THAT_CLICK.has(type);
}
