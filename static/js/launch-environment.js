// The cards of environments and the list of versions of the one that is chosen; one that is being built is not offered yet.
import { gettext } from "#i18n";
import { presenceText, sizeText } from "#image-text";
import { changed, facts, field, form, group, imageName } from "#launch-form";

const TONES = 5; // of the marks of the environments, see launch.css
const images = field("image");
const groups = new Map([...images.querySelectorAll("optgroup")].map((each) => [each.label, [...each.children]]));
const cards = [...form.querySelectorAll("[data-environment]")];
const isUnusable = (option) => "unusable" in (option?.dataset ?? {});
const chosenCard = () => cards.find((card) => card.querySelector("input").checked);
const usual = (options) => options.find((each) => "default" in each.dataset) ?? options[0]; // the newest is first

// Returns the two letters that stand for an environment: "PT" for PyTorch, "Py" for Python.
function monogram(name) {
  const capitals = name.match(/\p{Lu}/gu) ?? [];
  return capitals.length > 1 ? capitals.slice(0, 2).join("") : name.slice(0, 2);
}

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
  return [size && !isSized ? sizeText(size) : "", presence].filter(Boolean).join(" · ");
}

function describe(card) {
  const options = groups.get(card.dataset.environment);
  const option = card === chosenCard() ? images.selectedOptions[0] : usual(options);
  const image = facts.images[option.value];
  const say = (part, text) => (card.querySelector(`.environment-${part}`).textContent = text);
  say("about", image.description);
  say("apps", [...image.apps, gettext("Terminal")].join(" · "));
  say("place", isUnusable(option) ? gettext("not ready yet") : placeOf(image));
}

function offer(name, selected) {
  images.replaceChildren(...groups.get(name));
  images.value = selected ?? usual(groups.get(name)).value;
}

// Returns whether the chosen image cannot be launched yet.
export function isWaiting() {
  return !imageName() && isUnusable(images.selectedOptions[0]);
}

export function showEnvironment() {
  for (const card of cards) describe(card);
  const isNamed = Boolean(imageName());
  images.disabled = isNamed;
  document.getElementById("environments").disabled = isNamed;
}

// Follows the list of images that are being built.
function noteBuilds() {
  const waiting = new Set([...document.querySelectorAll("[data-image]:not([data-usable])")].map((each) => each.dataset.image));
  const moved = [...groups.values()].flat().filter((each) => waiting.has(each.value) !== isUnusable(each));
  for (const option of moved) {
    option.toggleAttribute("data-unusable");
    nameOption(option);
  }
  if (moved.length) changed(); // has the advice written anew, too
}

export function bindEnvironment() {
  for (const option of images.options) nameOption(option);
  for (const [number, card] of cards.entries()) {
    card.dataset.tone = number % TONES;
    card.querySelector(".environment-logo").textContent = monogram(card.dataset.environment);
    card.querySelector("input").addEventListener("change", () => {
      offer(card.dataset.environment);
      changed(images);
    });
  }
  const current = images.selectedOptions[0].parentElement.label;
  cards.find((card) => card.dataset.environment === current).querySelector("input").checked = true;
  offer(current, images.value);
  document.addEventListener("htmx:afterSettle", noteBuilds);
  let suggested = 1; // the first is the placeholder
  document.getElementById("suggest-name").addEventListener("click", () => {
    const name = field("name");
    name.value = facts.names[suggested++ % facts.names.length];
    changed(name);
  });
}
