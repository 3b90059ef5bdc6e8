// What a key of the pages does: "launch", "search", "keys", or "" if it is not for us.
const ACTIONS = { n: "launch", "/": "search", "?": "keys" };
const TYPES_THAT_CLICK = new Set(["button", "checkbox", "color", "file", "image", "radio", "range", "reset", "submit"]);

// `event` is a keydown; `target` what has the focus, as {tag, type, isEditable}.
export function actionOf(event, target, { isDialogOpen = false } = {}) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.repeat || isDialogOpen) return "";
  if (takesText(target)) return "";
  return ACTIONS[event.key] ?? "";
}

function takesText({ tag, type, isEditable }) {
  if (isEditable || tag === "TEXTAREA" || tag === "SELECT") return true;
  return tag === "INPUT" && !TYPES_THAT_CLICK.has(type);
}
