// What a message about changed rows does to the rows that a page shows. No page here.

function stepFor({ id, tab, status, created }, page, known) {
  const isListed = tab === page.tab && (!page.status || status === page.status);
  if (known.has(id)) return { action: isListed ? "morph" : "remove", id };
  if (!isListed) return null;
  if (!page.isNewestFirst) return { action: page.status ? "fetch" : "fetch later" };
  return created > page.newest ? { action: "insert", id } : null; // an older one is on another page
}

// Returns the steps for `rows` ({id, tab, status, created}), as {action, id}: "morph" and "remove" rows that are shown, "insert" new
// ones at the top, "fetch" where only the server knows what belongs on the page, "fetch later" where it only may know more.
// `page` tells the ids that are shown, its tab, the status that it is limited to if any, whether new sessions are first on it, when its newest was created, and how
// many it holds.
export function stepsFor(rows, page) {
  const known = new Set(page.shown);
  const inOrder = [...rows].sort((one, other) => one.created - other.created);
  const steps = inOrder.map((row) => stepFor(row, page, known)).filter(Boolean);
  const number = (name) => steps.filter(({ action }) => action === name).length;
  const count = page.shown.length + number("insert") - number("remove");
  const isShort = number("remove") > 0 && page.shown.length >= page.size;
  const wasEmpty = page.shown.length === 0 && count > 0;
  if (isShort || wasEmpty || count > page.size || (count === 0 && steps.length > 0)) steps.push({ action: "fetch" });
  return steps;
}
