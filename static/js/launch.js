// The launch page: dependent version list, variable rows, sliders bound to the inputs, and the review line.
// Only the inputs are posted, and the server decides; without this script the form still launches.
const MIB = 2 ** 20;
const GIB = 2 ** 30;
const UNITS = { "": GIB, k: 1024, m: MIB, g: GIB, t: 1024 * GIB }; // a plain number is GiB, as on the server
const AMOUNTS = ["cpu", "memory", "shared_memory", "fgpu"];
const MOST_SESSIONS = 50;

const form = document.getElementById("launch");
const facts = form && JSON.parse(document.getElementById("facts").textContent);
const field = (name) => document.getElementById(`id_${name}`);

// Amounts are compared in the units of `facts`: cores, bytes, milli-fGPU.
const read = {
  whole: (text) => (/^\d+$/.test(text.trim()) ? Number(text) : NaN),
  size(text) {
    const match = /^(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b)?$/i.exec(text.trim());
    if (!match) return NaN;
    return Math.floor(Number(match[1]) * (match[2] || !match[3] ? UNITS[match[2].toLowerCase()] : 1));
  },
  fgpu: (text) => (text.trim() === "" ? 0 : Math.round(Number(text) * 1000)),
};
const plain = (number) => String(Math.round(number * 100) / 100);
const write = {
  whole: String,
  size: (bytes) => (bytes >= GIB ? `${plain(bytes / GIB)} GiB` : `${plain(bytes / MIB)} MiB`),
  fgpu: (milli) => plain(milli / 1000),
};

// One step of each slider and the least it offers; sizes move in powers of two, so that MiB and TiB are both near.
function scaleOf(name, most) {
  if (name === "cpu" || name === "count") return { from: 1, to: Math.max(1, most), toAmount: (x) => x, fromAmount: (x) => x };
  if (name === "fgpu") return { from: 0, to: Math.max(0, most / 50), toAmount: (x) => x * 50, fromAmount: (x) => x / 50 };
  const least = Math.log2(64 * MIB) * 2;
  const top = Math.max(least, Math.floor(Math.log2(Math.max(most, 64 * MIB)) * 2));
  return {
    from: least,
    to: top,
    toAmount: (x) => Math.round(2 ** (x / 2) / (64 * MIB)) * 64 * MIB,
    fromAmount: (x) => Math.log2(x) * 2,
  };
}

const kindOf = (name) => document.querySelector(`[data-amount="${name}"]`).dataset.kind;
const amountOf = (name) => read[kindOf(name)](field(name).value);
const group = () => facts.groups[field("resource_group").value];
const preset = () => facts.presets[form.elements.preset.value];

function mostOf(name) {
  if (name === "count") return Math.min(MOST_SESSIONS, facts.left.sessions ?? MOST_SESSIONS) || 1;
  if (name === "shared_memory") return amountOf("memory") || group()?.memory || 4 * GIB;
  return group()?.[name] ?? { cpu: 64, memory: 256 * GIB, fgpu: 8000 }[name];
}

function hintOf(name) {
  const words = write[kindOf(name)];
  const least = facts.images[field("image").value]?.[name];
  const left = { cpu: facts.left.cpu, memory: facts.left.memory, fgpu: facts.left.fgpu, count: facts.left.sessions }[name];
  const parts = [];
  if (name === "fgpu" && group()) parts.push(`1 fGPU is 1/${group().perGpu} of a GPU here`);
  if (name in (group() ?? {})) parts.push(`up to ${words(mostOf(name))} per session`);
  if (left !== undefined && left !== null) parts.push(`${words(left)} left in your policy`);
  if (least && !(name === "cpu" && least === 1) && !(name === "memory" && least <= 64 * MIB)) parts.push(`this environment needs ${words(least)}`);
  return parts.join(" · ");
}

function fitSliders() {
  for (const box of document.querySelectorAll("[data-amount]")) {
    const name = box.dataset.amount;
    const slider = box.querySelector("[data-slider]");
    const scale = scaleOf(name, mostOf(name));
    slider.min = scale.from;
    slider.max = scale.to;
    slider.disabled = scale.from === scale.to;
    const amount = amountOf(name);
    if (amount >= 0) slider.value = scale.fromAmount(amount);
    box.querySelector("[data-hint]").textContent = hintOf(name);
  }
}

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
  for (const option of images.options) option.text = option.dataset.version; // its environment has a list of its own
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
  const image = field("image").selectedOptions[0];
  const where = field("resource_group");
  const place = where.selectedOptions ? where.selectedOptions[0].text.split(" — ")[0] : where.nextElementSibling.firstChild.textContent.trim();
  const broken = [cpu, memory, shared, fgpu, count].some((amount) => !(amount >= 0));
  const line = document.getElementById("review");
  const note = document.getElementById("review-note");
  if (broken) {
    line.textContent = "One of the amounts is not a number yet.";
    note.textContent = "";
    return;
  }
  const environment = document.getElementById("environment-choice").value;
  const parts = [`${environment} ${image.text}`, `${cpu} core${cpu === 1 ? "" : "s"}`, `${write.size(memory)} RAM`, `${write.size(shared)} shared`];
  if (fgpu) parts.push(`${write.fgpu(fgpu)} fGPU`);
  line.textContent = `${count === 1 ? "" : `${count} × `}${parts.join(" · ")}, in ${place}`;
  note.textContent = prospect({ cpu, memory, fgpu });
}

// What speaks against the order at once; the server says when it starts (#advice) and has the last word.
function prospect(each) {
  const words = { cpu: "CPU", memory: "RAM", fgpu: "fGPU" };
  const least = facts.images[field("image").value] ?? {};
  const short = ["cpu", "memory", "fgpu"].filter((name) => each[name] < least[name]);
  if (short.length) return `This environment needs at least ${short.map((name) => `${write[kindOf(name)](least[name])} ${words[name]}`).join(", ")}.`;
  const never = Object.keys(words).filter((name) => each[name] > (group()?.[name] ?? Infinity)).map((name) => words[name]);
  if (never.length) return `More than one session can have here (${never.join(", ")}).`;
  return "";
}

function update() {
  const about = document.getElementById("image-about");
  about.textContent = field("image").selectedOptions[0]?.title ?? "";
  about.hidden = !about.textContent;
  fitSliders();
  review();
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
      const amount = scaleOf(name, mostOf(name)).toAmount(Number(event.target.value));
      field(name).value = write[kindOf(name)](amount);
    }
    if (["preset", "resource_group"].includes(event.target.name)) choosePresets();
    update();
  });
  form.addEventListener("submit", () => {
    const button = document.getElementById("launch-button");
    button.classList.add("btn-loading");
    setTimeout(() => (button.disabled = true)); // after the post has been put together
  });
  addEventListener("pageshow", () => {
    const button = document.getElementById("launch-button");
    button.disabled = false;
    button.classList.remove("btn-loading");
  });
  (form.querySelector("[aria-invalid=true]") ?? document.getElementById("launch-errors"))?.focus();
}
