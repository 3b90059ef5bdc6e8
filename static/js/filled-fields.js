// Values that are filled into the fields of a form, where nobody has typed anything else.

// Returns a value as a field has it: whether it is checked, or a text.
const fieldValue = (value) => (typeof value === "boolean" ? value : String(value ?? ""));

// Fills the fields of the form that are untouched, or all of them; `filled` is what was filled in last.
export function fillFields(form, values, filled, replaces) {
  for (const [name, value] of Object.entries(values)) {
    const field = form.elements[name];
    if (!field) continue; // a form of a revision has no name
    const property = field.type === "checkbox" ? "checked" : "value";
    const present = field[property];
    const untouched = present === "" || present === fieldValue(filled[name] ?? initialOf(field));
    if (replaces || untouched) field[property] = fieldValue(value);
  }
}

function initialOf(field) {
  if (field.tagName !== "SELECT") return field.type === "checkbox" ? field.defaultChecked : field.defaultValue;
  return [...field.options].find((option) => option.defaultSelected)?.value ?? field.options[0]?.value;
}
