// The folders of the launch page: search among them, and one that is made there.
import { changed } from "#launch-form";
import { bindSearch } from "#row-search";

const list = document.getElementById("folders");
const rows = () => [...(list?.querySelectorAll("[data-folder]") ?? [])];
const isChosen = (row) => row.querySelector("[name=mount]").checked;

// Returns whether a session would mount nothing at all.
export function mountsNothing() {
  return !rows().some(isChosen) && !document.querySelector("[data-always]");
}

export function bindFolders() {
  bindSearch(document.getElementById("folder-search"), rows, isChosen);
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.detail.target === list) changed(list.lastElementChild.querySelector("[name=mount]")); // a new one, chosen
  });
}
