// What the launch page says about the folders of a session. No page here.
const listed = (names) => (names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`);

const worded = ({ name, path, isReadOnly }) =>
  name + (path && path !== name && path !== `/home/work/${name}` ? ` at ${path}` : "") + (isReadOnly ? " (read-only)" : "");

// Returns the sentence, and whether it warns. `chosen` are folders as {name, path, isReadOnly}, `always` the names of
// those that every session mounts.
export function mountsText(chosen, always) {
  const usual = always.length ? `${listed(always)} ${always.length === 1 ? "is" : "are"} always mounted` : "";
  if (chosen.length) return { text: `Mounts ${listed(chosen.map(worded))}${usual && `; ${usual}`}.`, isWarning: false };
  if (usual) return { text: `No other folders are mounted: ${usual}. What the session writes elsewhere is lost when it ends.`, isWarning: true };
  return { text: "No folders are mounted: what the session writes is lost when it ends.", isWarning: true };
}
