// The folders of the launch page: search among them, and one that is made there.
import { changed } from "#launch-form";

const list = document.getElementById("folders");
const rows = () => [...(list?.querySelectorAll("[data-folder]") ?? [])];
const isChosen = (row) => row.querySelector("[name=mount]").checked;

// Returns whether a session would mount nothing at all.
export function mountsNothing() {
  return !rows().some(isChosen) && !document.querySelector("[data-always]");
}

function search(text) {
  const wanted = text.trim().toLowerCase();
  for (const row of rows()) row.hidden = !isChosen(row) && !row.dataset.search.toLowerCase().includes(wanted);
}

export function bindFolders() {
  const box = document.getElementById("folder-search");
  box?.addEventListener("input", (event) => {
    event.stopPropagation(); // nothing of the form has changed
    search(box.value);
  });
  box?.addEventListener("keydown", (event) => {
    if (event.key === "Enter") event.preventDefault(); // it would launch
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.detail.target === list) changed(list.lastElementChild.querySelector("[name=mount]")); // a new one, chosen
  });
}
