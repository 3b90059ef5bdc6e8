// Rows of environment variables as they are typed and pasted: what is applied, and what is wrong. No page here.
import { gettext } from "#i18n";

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
const LINE = /^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)$/;
const QUOTED = /^(["'])(.*)\1$/;

// Returns the rows that a pasted text stands for, as [{name, value}]; none where a line is no assignment.
export function rowsOf(text) {
  const lines = text.split(/\r?\n/).filter((line) => line.trim() && !line.trim().startsWith("#"));
  const found = lines.map((line) => LINE.exec(line));
  if (found.some((match) => !match)) return [];
  return found.map(([, name, value]) => ({ name, value: QUOTED.exec(value.trim())?.[2] ?? value }));
}

export const isEmpty = ({ name, value }) => !name.trim() && !value;
export const isIncomplete = (row) => !isEmpty(row) && (!row.name.trim() || !row.value);

// Returns the rows that are applied: those with a name and a value.
export function applied(rows) {
  return rows.filter((row) => row.name.trim() && row.value).map(({ name, value }) => ({ name: name.trim(), value }));
}

// Returns a message for each row, "" where nothing is wrong with what would be applied of it.
export function problemsOf(rows) {
  const seen = new Set();
  return rows.map(({ name, value }) => {
    const known = name.trim();
    if (!known || !value) return "";
    if (!NAME.test(known)) return gettext("A name has letters, digits and _ and does not begin with a digit.");
    if (seen.has(known)) return gettext("%(name)s is set twice.", { name: known });
    seen.add(known);
    return "";
  });
}

// Returns whether two lists of rows apply the same.
export function isSame(rows, others) {
  return JSON.stringify(applied(rows)) === JSON.stringify(applied(others));
}
