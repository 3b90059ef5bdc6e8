// The cards of environments, each with the list of its versions: what the chosen version is, and what is not ready yet.
import { write } from "#amounts";
import { gettext } from "#i18n";
import { presenceText } from "#image-text";
import { changed, facts, field, form, group, imageName, versions } from "#launch-form";

const cards = [...form.querySelectorAll("[data-environment]")];
const isUnusable = (option) => "unusable" in (option?.dataset ?? {});

function nameOption(option) {
  const { version } = facts.images[option.value];
  option.text = isUnusable(option) ? gettext("%(version)s (not ready)", { version }) : version;
}

// Returns how large an image is and where it is; a sentence on pulling it says its size already.
function placeOf({ hosts, size, isPulled }) {
  const total = group()?.hosts ?? 0;
  const have = hosts[field("resource_group").value] ?? 0;
  const presence = presenceText({ have, total, size, isPulled });
  const isSized = isPulled && total > have;
  return [size && !isSized ? write.size(size) : "", presence].filter(Boolean).join(" · ");
}

function describe(card) {
  const [option] = card.querySelector("select").selectedOptions;
  const image = facts.images[option.value];
  const say = (part, text) => (card.querySelector(`.environment-${part}`).textContent = text);
  say("about", image.description);
  say("apps", [...image.apps, gettext("Terminal")].join(" · "));
  say("place", isUnusable(option) ? gettext("not ready yet") : placeOf(image));
}

// Returns whether the chosen image cannot be launched yet.
export function isWaiting() {
  return !imageName() && isUnusable(versions()?.selectedOptions[0]);
}

export function showEnvironment() {
  for (const card of cards) describe(card);
  document.getElementById("environments").disabled = Boolean(imageName());
}

// Follows the list of images that are being built.
function noteBuilds() {
  const waiting = new Set([...document.querySelectorAll("[data-image]:not([data-usable])")].map((each) => each.dataset.image));
  const options = cards.flatMap((card) => [...card.querySelectorAll("option")]);
  const moved = options.filter((each) => waiting.has(each.value) !== isUnusable(each));
  for (const option of moved) {
    option.toggleAttribute("data-unusable");
    nameOption(option);
  }
  if (moved.length) changed(); // has the advice written anew, too
}

export function bindEnvironment() {
  document.addEventListener("htmx:afterSettle", noteBuilds);
  let suggested = 1; // the first is the placeholder
  document.getElementById("suggest-name").addEventListener("click", () => {
    const name = field("name");
    name.value = facts.names[suggested++ % facts.names.length];
    changed(name);
  });
}
