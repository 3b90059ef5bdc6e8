// Says whether the browser may show notifications, and asks it to.
import { gettext } from "#i18n";

const place = document.getElementById("browser-permission");
const words = place.querySelector("[data-words]");
const button = place.querySelector("[data-ask]");

function show() {
  const isPossible = window.Notification !== undefined && window.isSecureContext;
  const state = isPossible ? Notification.permission : "impossible";
  const texts = {
    granted: gettext("This browser shows notifications."),
    default: gettext("This browser has not been asked yet whether it may show notifications."),
    denied: gettext("This browser was told to show no notifications of this site; its settings change that."),
    impossible: gettext("This browser shows notifications only of sites with HTTPS."),
  };
  words.textContent = texts[state];
  button.hidden = state !== "default";
  place.hidden = false;
}

button.addEventListener("click", async () => {
  await Notification.requestPermission();
  show();
});
show();
