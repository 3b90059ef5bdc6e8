// Which notifications a page shows, and how. No page here.
const REMEMBERED = 100; // ids

// Returns { toasts, browser, done }: what to show on the page and by the browser, and the ids that need be shown no more.
// `pending` is what the server says that nobody has shown, `known` the ids that another page of this browser has.
export function choose(pending, known, { isVisible, mayNotify }) {
  const chosen = { toasts: [], browser: [], done: [] };
  for (const notice of pending) {
    if (known.includes(notice.id)) {
      chosen.done.push(notice.id);
      continue;
    }
    const byBrowser = notice.inBrowser && mayNotify && (!isVisible || !notice.onPage);
    if (byBrowser) chosen.browser.push(notice);
    else if (isVisible && notice.onPage) chosen.toasts.push(notice);
    else if (!isVisible) continue; // a page that is looked at shows it later
    chosen.done.push(notice.id);
  }
  return chosen;
}

// Returns the ids to remember in this browser.
export function remembered(known, done) {
  return [...new Set([...known, ...done])].slice(-REMEMBERED);
}

// Returns the text of the bell's count; "" for none.
export function countText(unread) {
  if (!unread) return "";
  return unread >= 99 ? "99+" : String(unread);
}
