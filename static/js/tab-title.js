// The title of the browser's tab: what the page or its terminal calls itself, after the time left when that is short.
let title = document.title;
let notice = "";

function write() {
  const text = notice ? `${notice} · ${title}` : title;
  if (document.title !== text) document.title = text;
}

// The page calls itself so.
export function setTitle(text) {
  title = text;
  write();
}

// Stands before the title; "" for nothing.
export function setNotice(text) {
  notice = text;
  write();
}
