// Says what is the matter where the terminal does not come up. Needs none of the page's modules: they may be missing.
(() => {
  const gettext = (text) => globalThis.translations?.texts[text]?.[0] ?? text; // #i18n is a module
  const TROUBLE_TIMEOUT_MS = 15_000;
  const WORDS = {
    missing: gettext("A part of this page did not arrive, so the terminal cannot start. A filter or the network on the way may have held it back."),
    silent: gettext("The scripts of this page have not started. They may still be on their way, or your browser may not run them."),
    closed: gettext("The page has no connection to the terminal. A proxy, firewall or extension on the way may not let websockets pass."),
  };

  function say(words) {
    const place = document.getElementById("terminal-trouble");
    place.querySelector("[data-words]").textContent = words;
    place.hidden = false;
    document.querySelector("#terminal-state [data-text]").textContent = gettext("Not connected");
    place.querySelector("[data-reload]").focus();
  }

  function sayWhy() {
    if (!document.getElementById("terminal-trouble").hidden) return; // the cause is known
    const isStarted = document.querySelector("#terminal .xterm") !== null;
    say(isStarted ? WORDS.closed : WORDS.silent);
  }

  addEventListener(
    "error",
    (event) => {
      if (event.target instanceof HTMLScriptElement && "needed" in event.target.dataset) say(WORDS.missing);
    },
    true, // such errors do not bubble
  );

  document.addEventListener("DOMContentLoaded", () => {
    const state = document.getElementById("terminal-state");
    const timer = setTimeout(sayWhy, TROUBLE_TIMEOUT_MS);
    const observer = new MutationObserver(() => {
      if (state.dataset.state !== "open" && state.dataset.state !== "ended") return;
      clearTimeout(timer);
      observer.disconnect();
      document.getElementById("terminal-trouble").hidden = true;
    });
    observer.observe(state, { attributeFilter: ["data-state"] });
    document.querySelector("#terminal-trouble [data-reload]").addEventListener("click", () => location.reload());
  });
})();
