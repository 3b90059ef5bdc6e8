// A box of the launch form that searches rows by their data-search; what is chosen stays.
export function bindSearch(box, rows, isChosen) {
  box?.addEventListener("input", (event) => {
    event.stopPropagation(); // nothing of the form has changed
    const wanted = box.value.trim().toLowerCase();
    for (const row of rows()) row.hidden = !isChosen(row) && !row.dataset.search.toLowerCase().includes(wanted);
  });
  box?.addEventListener("keydown", (event) => {
    if (event.key === "Enter") event.preventDefault(); // it would launch
  });
}
