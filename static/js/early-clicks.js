// Keeps a click on a control that needs scripts while these are being loaded, and does it again once they are. It is a
// plain script in the head, so that it is there before the first control is.
(() => {
  const NEEDS_SCRIPTS = "button[type=button], a[hx-get], button[hx-get], [data-scripted], [data-step-link], [data-step-by]";
  let kept = null;

  function keep(event) {
    const control = event.target.closest(NEEDS_SCRIPTS);
    if (!control || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    kept = control;
  }

  document.addEventListener("click", keep, true);
  document.addEventListener("DOMContentLoaded", () => {
    // After the listeners of this event, with which libraries begin.
    setTimeout(() => {
      document.removeEventListener("click", keep, true);
      if (kept?.isConnected) kept.click();
    });
  });
})();
