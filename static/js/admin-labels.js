// What Django's administration leaves unsaid to screen readers: headers of columns without a name, and icons of filters.
addEventListener("load", () => {
  for (const head of document.querySelectorAll(".tabular th:empty")) {
    const cell = document.createElement("td");
    cell.className = head.className;
    head.replaceWith(cell);
  }
  for (const icon of document.querySelectorAll(".search-label-icon")) icon.setAttribute("role", "img");
});
