// What the palette shows and selects, without a page.

// Whether each word of `query` begins a word of `text`, or is a part of it where it is longer than two characters.
export function hasAllWords(text, query) {
  const words = text.toLowerCase().split(/\s+/);
  const isIn = (part) => words.some((word) => word.startsWith(part) || (part.length > 2 && word.includes(part)));
  return query.toLowerCase().trim().split(/\s+/).every((part) => !part || isIn(part));
}

// The index after (step 1) or before (step -1) `index` among `count`, round and round; -1 is none.
export function nextIndex(index, step, count) {
  if (!count) return -1;
  return index < 0 ? (step > 0 ? 0 : count - 1) : (index + step + count) % count;
}

// Whether `text` holds what is typed: until the server has answered, nothing else of its last answer is shown.
export function holds(text, query) {
  return text.toLowerCase().includes(query.trim().toLowerCase());
}

// What is selected of `shown`: what the arrows chose stays where it is, else the first is.
export function selectedOf(shown, before, { isChosen }) {
  return isChosen && shown.includes(before) ? before : shown[0];
}

// Whether a key belongs to an input method: Safari ends the composition before the Enter that did so, and names it 229.
export function isOfInputMethod(event) {
  return event.isComposing || event.keyCode === 229;
}
