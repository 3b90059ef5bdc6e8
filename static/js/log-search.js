// Finds a text in the pieces of a log. No page here.

// Returns [start, end] of each place where `wanted` is in `text`, in any case; none for an empty one.
export function occurrences(text, wanted, most = 2000) {
  const found = [];
  const needle = wanted.toLowerCase();
  if (!needle) return found;
  const hay = text.toLowerCase();
  if (hay.length !== text.length) return found; // some letters change their length, and places would not fit
  for (let at = hay.indexOf(needle); at !== -1 && found.length < most; at = hay.indexOf(needle, at + needle.length)) {
    found.push([at, at + needle.length]);
  }
  return found;
}

// Returns [piece, offset] of each place in the whole, given the lengths of its pieces; the places are in order.
export function located(lengths, places) {
  const last = lengths.length - 1;
  let piece = 0;
  let begin = 0;
  return places.map((place) => {
    while (piece < last && place >= begin + lengths[piece]) {
      begin += lengths[piece];
      piece += 1;
    }
    return [piece, Math.min(place - begin, lengths[piece] ?? 0)];
  });
}

// Returns the place after `current` in a round of `count`, or before it.
export function step(current, by, count) {
  return count ? (current + by + count) % count : -1;
}
