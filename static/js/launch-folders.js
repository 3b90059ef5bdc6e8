// The folders of the launch page: search among them, and what is said beside the launch button.
import { mountsText } from "#mounts-text";

const list = document.getElementById("folders");
const rows = [...(list?.querySelectorAll("[data-folder]") ?? [])];
const isChosen = (row) => row.querySelector("[name=mount]").checked;

function mountOf(row) {
  const isReadOnly = row.querySelector("[name=mount_read_only]").checked;
  return { name: row.dataset.folder, path: row.querySelector("[data-path]").value.trim(), isReadOnly };
}

function say() {
  const line = document.getElementById("review-folders");
  if (!line) return;
  const { text, isWarning } = mountsText(rows.filter(isChosen).map(mountOf), JSON.parse(line.dataset.always));
  line.classList.toggle("is-warning", isWarning);
  line.querySelector("span").textContent = text;
}

function search(text) {
  const wanted = text.trim().toLowerCase();
  for (const row of rows) row.hidden = !isChosen(row) && !row.dataset.search.toLowerCase().includes(wanted);
}

say();
document.getElementById("launch")?.addEventListener("input", (event) => {
  if (event.target.id === "folder-search") search(event.target.value);
  else say();
});
document.getElementById("folder-search")?.addEventListener("keydown", (event) => {
  if (event.key === "Enter") event.preventDefault(); // it would launch
});
