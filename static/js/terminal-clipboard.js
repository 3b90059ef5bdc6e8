// The clipboard of the user's computer, also where the page has no right to the modern one (plain HTTP).

// Returns whether the text was copied.
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyByCommand(text);
  }
}

// Returns the clipboard's text, or null where the page may not read it.
export async function readText() {
  try {
    return await navigator.clipboard.readText();
  } catch {
    return null;
  }
}

function copyByCommand(text) {
  const focused = document.activeElement;
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "terminal-offscreen";
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  focused?.focus();
  return copied;
}

// What OSC 52 carries (`c;<base64>`), as tmux and vim send when they copy; null for a question, which is not answered.
export function textFromOsc52(data) {
  const payload = data.slice(data.indexOf(";") + 1);
  if (payload === "?") return null;
  try {
    return new TextDecoder().decode(Uint8Array.from(atob(payload), (letter) => letter.charCodeAt(0)));
  } catch {
    return null;
  }
}
