// The launch page: dependent version list, variable rows, sliders bound to the inputs, and the review line.
// Only the inputs are posted, and the server decides; without this script the form still launches.
import { GIB, hint, objection, read, scaleOf, summary, write } from "#amounts";
import { presenceText } from "#image-text";

const AMOUNTS = ["cpu", "memory", "shared_memory", "fgpu"];
const MAX_SESSIONS = 50;

const form = document.getElementById("launch");
const facts = form && JSON.parse(document.getElementById("facts").textContent);
const field = (name) => document.getElementById(`id_${name}`);

const imageName = () => field("image_name").value.trim(); // typed instead of an environment
const image = () => (imageName() ? undefined : facts.images[field("image").value]);
const kindOf = (name) => document.querySelector(`[data-amount="${name}"]`).dataset.kind;
const amountOf = (name) => read[kindOf(name)](field(name).value);
const group = () => facts.groups[field("resource_group").value];
const preset = () => facts.presets[form.elements.preset.value];

function largestOf(name) {
  if (name === "count") return Math.min(MAX_SESSIONS, facts.left.sessions ?? MAX_SESSIONS) || 1;
  if (name === "shared_memory") return amountOf("memory") || group()?.memory || 4 * GIB;
  return group()?.[name] ?? { cpu: 64, memory: 256 * GIB, fgpu: 8000 }[name];
}

function hintOf(name) {
  const { cpu, memory, fgpu, sessions: count } = facts.left;
  const least = image()?.[name];
  return hint(name, kindOf(name), { group: group(), largest: largestOf(name), least, left: { cpu, memory, fgpu, count }[name] });
}

function presence() {
  const where = group();
  if (!where || !image()) return "";
  const { hosts, size, isPulled } = image();
  return presenceText({ have: hosts[field("resource_group").value] ?? 0, total: where.hosts, size, isPulled });
}

function fitSliders() {
  for (const box of document.querySelectorAll("[data-amount]")) {
    const name = box.dataset.amount;
    const slider = box.querySelector("[data-slider]");
    const scale = scaleOf(name, largestOf(name));
    slider.min = scale.from;
    slider.max = scale.to;
    slider.disabled = scale.from === scale.to;
    const amount = amountOf(name);
    if (amount >= 0) slider.value = scale.fromAmount(amount);
    box.querySelector("[data-hint]").textContent = hintOf(name);
  }
}

// The environment has a list of its own, so that an option is a version; one that is being built is not offered yet.
function nameOption(option) {
  const isReady = !("unusable" in option.dataset);
  option.text = option.dataset.version + (isReady ? "" : " (not ready)");
}

let onBuilds = () => {}; // what to do once the list of builds has changed

function chooseEnvironment() {
  const images = field("image");
  const choice = document.getElementById("environment-choice");
  const groups = [...images.querySelectorAll("optgroup")].map((each) => ({ name: each.label, options: [...each.children] }));
  const offer = (name, selected) => {
    images.replaceChildren(...groups.find((each) => each.name === name).options);
    const usual = images.querySelector("[data-default]") ?? images.options[images.options.length - 1]; // the newest is last
    images.value = selected ?? usual.value;
    update();
  };
  for (const option of images.options) nameOption(option);
  onBuilds = () => {
    const waiting = new Set([...document.querySelectorAll("[data-image]:not([data-usable])")].map((each) => each.dataset.image));
    const changed = groups.flatMap((each) => each.options).filter((each) => waiting.has(each.value) !== ("unusable" in each.dataset));
    for (const option of changed) {
      option.toggleAttribute("data-unusable");
      nameOption(option);
    }
    if (changed.length) form.dispatchEvent(new Event("input", { bubbles: true })); // has the advice written anew, too
  };
  choice.replaceChildren(...groups.map((each) => new Option(each.name, each.name)));
  const current = images.selectedOptions[0].parentElement.label;
  choice.value = current;
  choice.addEventListener("change", () => offer(choice.value));
  offer(current, images.value);
}

function choosePresets() {
  const id = Number(field("resource_group").value);
  for (const label of document.querySelectorAll(".preset[data-group]")) {
    const offered = !label.dataset.group || Number(label.dataset.group) === id;
    label.hidden = !offered;
    const radio = label.querySelector("input");
    if (!offered && radio.checked) form.querySelector('input[name=preset][value=""]').checked = true;
  }
  const chosen = preset();
  document.getElementById("custom").hidden = Boolean(chosen);
  if (!chosen) return;
  for (const name of AMOUNTS) field(name).value = write[kindOf(name)](chosen[name]);
}

function review() {
  const [cpu, memory, shared, fgpu, count] = [...AMOUNTS, "count"].map(amountOf);
  const chosen = field("image").selectedOptions[0];
  const where = field("resource_group");
  const place = where.selectedOptions ? where.selectedOptions[0].text.split(" — ")[0] : where.nextElementSibling.firstChild.textContent.trim();
  const broken = [cpu, memory, shared, fgpu, count].some((amount) => !(amount >= 0));
  const line = document.getElementById("review");
  const note = document.getElementById("review-note");
  if (broken) {
    line.textContent = "One of the amounts is missing or not understood.";
    note.textContent = "";
    return;
  }
  // One's own images are listed under a common title, with their environment in the version.
  const environment = imageName() || "isPrivate" in chosen.dataset ? "" : document.getElementById("environment-choice").value;
  const version = imageName() || chosen.dataset.version;
  line.textContent = summary({ environment, version, place, cpu, memory, shared, fgpu, count });
  const least = image();
  note.textContent = objection({ cpu, memory, fgpu }, { least, group: group() }); // #advice says when it starts
}

function update() {
  const about = document.getElementById("image-about");
  about.textContent = imageName() ? "" : [field("image").selectedOptions[0]?.title, presence()].filter(Boolean).join(" · ");
  about.hidden = !about.textContent;
  for (const name of ["image", "environment-choice"]) {
    (document.getElementById(name) ?? field(name)).disabled = Boolean(imageName());
  }
  fitSliders();
  review();
  const isUnusable = !imageName() && "unusable" in (field("image").selectedOptions[0]?.dataset ?? {});
  const button = document.getElementById("launch-button");
  button.disabled = isUnusable || button.classList.contains("btn-loading");
  document.getElementById("launch-waits").hidden = !isUnusable;
  document.getElementById("advice").hidden = isUnusable; // it would say the same, as it was a while ago
}

function bindVariables() {
  const rows = document.getElementById("variables");
  const blank = () => document.getElementById("variable-row").content.cloneNode(true);
  const add = () => {
    rows.append(blank());
    rows.lastElementChild.querySelector("input").focus();
  };
  document.getElementById("variable-add").addEventListener("click", add);
  document.getElementById("variable-clear").addEventListener("click", () => {
    rows.replaceChildren(blank());
    rows.querySelector("input").focus();
  });
  rows.addEventListener("click", (event) => {
    const button = event.target.closest("[data-variable-remove]");
    if (!button) return;
    button.closest(".variable-row").remove();
    if (!rows.children.length) rows.append(blank());
    rows.lastElementChild.querySelector("input").focus();
  });
}

// The earliest start is picked in the browser's zone; what is posted is the same moment in UTC.
function bindStart() {
  const posted = field("not_before");
  const shown = posted.cloneNode();
  const typed = new Date(posted.value.includes("Z") ? posted.value : `${posted.value.replace(" ", "T")}Z`);
  shown.type = "datetime-local";
  shown.removeAttribute("name");
  if (!Number.isNaN(typed.getTime())) {
    shown.value = new Date(typed - typed.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
  }
  posted.type = "hidden";
  posted.removeAttribute("id");
  posted.after(shown);
  shown.addEventListener("input", () => (posted.value = shown.value && new Date(shown.value).toISOString()));
}

if (form) {
  bindStart();
  chooseEnvironment();
  bindVariables();
  choosePresets();
  update();
  form.addEventListener("input", (event) => {
    if (event.target.matches("[data-slider]")) {
      const name = event.target.closest("[data-amount]").dataset.amount;
      const amount = scaleOf(name, largestOf(name)).toAmount(Number(event.target.value));
      field(name).value = write[kindOf(name)](amount);
    }
    if (["preset", "resource_group"].includes(event.target.name)) choosePresets();
    update();
  });
  document.addEventListener("htmx:afterSettle", () => onBuilds());
  form.addEventListener("submit", () => {
    const button = document.getElementById("launch-button");
    button.classList.add("btn-loading");
    setTimeout(() => (button.disabled = true)); // after the post has been put together
  });
  addEventListener("pageshow", () => {
    const button = document.getElementById("launch-button");
    button.classList.remove("btn-loading");
    update();
  });
  (form.querySelector("[aria-invalid=true]") ?? document.getElementById("launch-errors"))?.focus();
}
