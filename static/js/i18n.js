// Texts in the page's language. A page in another language than English loads static/js/translations/<language>.js
// first, which sets globalThis.translations; without it, texts stay as they are written in the code.
//
// A text is one whole sentence with named placeholders: gettext("Copied %(name)s", { name }).
const ENGLISH = { plural: (count) => (count === 1 ? 0 : 1), texts: {} };
const { plural, texts } = globalThis.translations ?? ENGLISH;
const chosen = globalThis.document?.documentElement.lang || "en";

// The locale for dates and numbers: the browser's own where it is a variant of the page's language, such as en-GB.
export const locale = globalThis.navigator?.languages?.find((each) => each.startsWith(chosen)) ?? chosen;

// Returns `text` with each %(name)s replaced by the value of that name; "%%" is a percent sign where values are given.
function interpolate(text, values) {
  return values ? text.replace(/%(?:\((\w+)\)s|%)/g, (found, name) => (name === undefined ? "%" : String(values[name]))) : text;
}

// Returns the text in the page's language.
export function gettext(text, values) {
  return interpolate(texts[text]?.[0] ?? text, values);
}

// Returns the form of a text for a number; %(count)s is the number.
export function ngettext(one, many, count, values = {}) {
  const forms = texts[one] ?? [one, many];
  const form = texts[one] ? plural(count) : ENGLISH.plural(count);
  return interpolate(forms[Number(form)], { count, ...values });
}
