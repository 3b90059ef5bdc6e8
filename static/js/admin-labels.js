// What Django's administration leaves unsaid to screen readers: headers of columns without a name, icons of filters,
// and fields that search as one types.
addEventListener("load", () => {
  for (const head of document.querySelectorAll(".tabular th:empty")) {
    const cell = document.createElement("td");
    cell.className = head.className;
    head.replaceWith(cell);
  }
  for (const icon of document.querySelectorAll(".search-label-icon")) icon.setAttribute("role", "img");
});

function nameSearchFields() {
  for (const field of document.querySelectorAll("select.select2-hidden-accessible + .select2-container")) {
    const name = field.previousElementSibling.labels[0]?.textContent.trim();
    if (!name) continue;
    for (const part of field.querySelectorAll("[role=combobox], [role=textbox]")) part.setAttribute("aria-label", name);
  }
}

globalThis.django?.jQuery?.(nameSearchFields); // after Django, which makes these fields in the same way
addEventListener("formset:added", nameSearchFields);
