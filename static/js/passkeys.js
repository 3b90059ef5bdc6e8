// Forms with [data-passkey]: "add" makes a passkey, "use" and "sign-in" use one; what the browser gives is sent with the form.
// They come hidden or disabled: sent before this script runs, a form would carry no credential.
import { gettext } from "#i18n";

const browser = globalThis.webauthnJSON; // of webauthn-json, which reads and writes WebAuthn's binary values as JSON

function optionsOfPage() {
  return JSON.parse(document.getElementById("passkey-options").textContent);
}

async function made(form) {
  const options = optionsOfPage().creation_options;
  const alone = form.elements.passwordless?.checked ?? false;
  const choice = options.publicKey.authenticatorSelection;
  choice.residentKey = alone ? "required" : "discouraged";
  choice.requireResidentKey = alone;
  if (alone) choice.userVerification = "required";
  return browser.create(options);
}

async function used(form) {
  if (form.dataset.passkey === "use") return browser.get(optionsOfPage().request_options);
  const response = await fetch(form.action, { headers: { Accept: "application/json" } });
  if (!response.ok) throw new Error(response.statusText);
  return browser.get((await response.json()).request_options);
}

function show(form, text) {
  const place = form.querySelector("[data-passkey-error]");
  place.textContent = text;
  place.hidden = !text;
}

async function send(event) {
  const form = event.currentTarget;
  event.preventDefault();
  show(form, "");
  try {
    const credential = await (form.dataset.passkey === "add" ? made(form) : used(form));
    form.elements.credential.value = JSON.stringify(credential);
    form.submit();
  } catch (error) {
    const isKnown = error.name === "InvalidStateError";
    show(form, isKnown ? gettext("This passkey is added already.") : gettext("That did not work, or you have cancelled it. Try again."));
  }
}

for (const form of document.querySelectorAll("form[data-passkey]")) {
  if (browser?.supported()) {
    form.addEventListener("submit", send);
    form.hidden = false;
    form.querySelector("[type=submit]").disabled = false;
  } else if (form.dataset.passkey === "add") {
    show(form, gettext("This browser has no passkeys, or the page did not come over HTTPS."));
  }
}
