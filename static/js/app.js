// The page of an app that is being opened turns into the app, and is not what Back leads to: it would lead on again.
const page = document.querySelector("[data-session-page]").dataset.sessionPage;

document.addEventListener("app:ready", ({ detail }) => {
  // Where the session's page is before this one already, it need not be there twice.
  const cameFrom = document.referrer && new URL(document.referrer).pathname;
  if (cameFrom === page) {
    location.replace(detail.address);
    return;
  }
  history.replaceState(null, "", page);
  location.assign(detail.address);
});

// Some browsers bring back what they showed at an entry of the history instead of what is at its address.
addEventListener("pageshow", (event) => {
  if (event.persisted && location.pathname === page) location.reload();
});
