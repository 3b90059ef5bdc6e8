// Sets light or dark before the first paint, so it is a plain blocking script; the choice lives in localStorage.
(() => {
  const KEY = "gpuplatform.theme";
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");

  function stored() {
    try {
      return localStorage.getItem(KEY) || "auto";
    } catch {
      return "auto"; // storage may be switched off
    }
  }

  function apply() {
    const choice = stored();
    const dark = choice === "dark" || (choice === "auto" && system.matches);
    root.setAttribute("data-bs-theme", dark ? "dark" : "light");
    for (const button of document.querySelectorAll("[data-theme-choice]")) {
      const chosen = button.dataset.themeChoice === choice;
      button.classList.toggle("active", chosen);
      button.setAttribute("aria-pressed", String(chosen));
    }
  }

  root.classList.add("js");
  apply();
  system.addEventListener("change", apply);
  addEventListener("storage", apply);
  document.addEventListener("DOMContentLoaded", apply);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-theme-choice]");
    if (!button) return;
    try {
      localStorage.setItem(KEY, button.dataset.themeChoice);
    } catch {
      return;
    }
    apply();
  });
})();
