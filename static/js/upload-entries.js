// The files of a file input or of a drop, whole directories included, each with its path. No page here.

// Files of an <input type=file>, with `webkitdirectory` or without it.
export function filesOfInput(input) {
  return [...input.files].map((file) => ({ file, path: file.webkitRelativePath || file.name }));
}

// The entries of a drop must be taken before anything is awaited: the browser empties the list after the event.
export function entriesOfDrop(transfer) {
  const items = [...transfer.items].filter((item) => item.kind === "file");
  return items.map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
}

// Resolves to { files: [{ file, path }], directories: [path of an empty one] }.
export async function walk(entries) {
  const found = { files: [], directories: [] };
  const waiting = entries.map((entry) => ({ entry, path: entry.name }));
  for (const { entry, path } of waiting) { // which grows meanwhile
    if (entry.isFile) {
      found.files.push({ file: await new Promise((resolve, reject) => entry.file(resolve, reject)), path });
    } else if (entry.isDirectory) {
      const children = await childrenOf(entry);
      if (!children.length) found.directories.push(path);
      for (const child of children) waiting.push({ entry: child, path: `${path}/${child.name}` });
    }
  }
  return found;
}

// A reader returns a part of a directory at a time, and an empty list at its end.
async function childrenOf(directory) {
  const reader = directory.createReader();
  const children = [];
  for (;;) {
    const part = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!part.length) return children;
    for (const child of part) children.push(child); // arguments of a call are limited
  }
}

export function joined(directory, path) {
  return directory ? `${directory}/${path}` : path;
}
