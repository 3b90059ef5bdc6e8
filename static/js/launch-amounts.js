// Presets and amounts of the launch page: sliders linked to fields, their ends, and what the fGPU are of a GPU.
import { fitSlider, takeSlider } from "#amount-sliders";
import { GIB, gpuMemoryHint, hint, read, write } from "#amounts";
import { cellsOf, memoryText, shareText } from "#gpu-share";
import { gettext, ngettext } from "#i18n";
import { amountOf, changed, facts, field, form, group, image, kindOf, left } from "#launch-form";

const AMOUNTS = ["cpu", "memory", "shared_memory", "fgpu"];
const MAX_SESSIONS = 50;
const MAX_MEMBERS = 64;
const FALLBACKS = { cpu: 64, memory: 256 * GIB, fgpu: 8000 }; // ends of sliders where no host is known

const custom = form.querySelector("[data-custom]");
const preset = () => facts.presets[form.elements.preset.value];

const LARGEST = {
  cluster_size: () => Math.max(1, Math.min(left().pending ?? MAX_MEMBERS, left().perCluster)),
  count: () => Math.max(1, Math.min(MAX_SESSIONS, left().pending ?? MAX_SESSIONS, left().perLaunch ?? MAX_SESSIONS)),
  shared_memory: () => amountOf("memory") || group()?.memory || 4 * GIB,
  gpu_memory: () => Math.max(0, ...(group()?.gpus ?? []).map((gpu) => gpu.memory)) || FALLBACKS.memory,
};
const largestOf = (name) => LARGEST[name]?.() ?? group()?.[name] ?? FALLBACKS[name];

function hintOf(name) {
  if (name === "cluster_size") return gettext("up to %(most)s", { most: largestOf(name) });
  const { cpu, memory, fgpu, sessions: count } = left();
  const text = hint(name, kindOf(name), {
    group: group(),
    largest: largestOf(name),
    least: image()?.[name],
    left: { cpu, memory, fgpu, count }[name],
  });
  return [text, ["fgpu", "gpu_memory"].includes(name) ? gpuMemoryHint(image()?.gpuMemory) : ""].filter(Boolean).join(" · ");
}

function fitSliders() {
  for (const box of form.querySelectorAll("[data-amount]")) {
    fitSlider(box, largestOf(box.dataset.amount));
    box.querySelector("[data-hint]").textContent = hintOf(box.dataset.amount);
  }
}

// Returns why a preset cannot be had in the chosen group and environment, or "".
function refusalOf(id) {
  const least = image() ?? {};
  const names = { cpu: gettext("CPU"), memory: gettext("RAM"), fgpu: gettext("fGPU") };
  if (facts.presets[id].gpu_memory) delete names.fgpu; // it follows from its GPU
  const short = Object.keys(names).filter((name) => facts.presets[id][name] < least[name]);
  if (short.length) {
    const amounts = short.map((name) => `${write[kindOf(name)](least[name])} ${names[name]}`).join(", ");
    return gettext("This environment needs at least %(amounts)s.", { amounts });
  }
  return facts.presets[id].refusals[field("resource_group").value] ?? "";
}

function offerPresets() {
  const groupId = field("resource_group").value;
  for (const label of form.querySelectorAll("[data-preset]")) {
    const radio = label.querySelector("input");
    const refusal = refusalOf(label.dataset.preset);
    label.classList.remove("no-js"); // it may be of another group than when the page was opened
    label.hidden = Boolean(label.dataset.group) && label.dataset.group !== groupId;
    radio.disabled = label.hidden || Boolean(refusal);
    label.querySelector(".preset-refusal").textContent = refusal;
    const { fgpu, gpu_memory: memory } = facts.presets[label.dataset.preset];
    const share = group() && fgpu && !memory ? shareText(fgpu, group()) : "";
    if (memory && group()) {
      label.querySelector(".preset-gpu").textContent = gettext("%(size)s of GPU memory: %(shares)s", { size: write.size(memory), shares: memoryText(memory, fgpu, group()) });
    } else if (share) label.querySelector(".preset-gpu").textContent = gettext("%(fgpu)s fGPU: %(share)s", { fgpu: write.fgpu(fgpu), share });
  }
}

// Moves the choice from a preset that cannot be had to the first that can.
function leaveRefused() {
  if (!form.querySelector("[data-preset] input:checked:disabled")) return;
  (form.querySelector("[data-preset] input:not(:disabled)") ?? custom).checked = true;
}

function showShare() {
  const box = document.getElementById("gpu-share");
  const milli = amountOf("fgpu");
  if (group()) {
    const { device } = group();
    document.querySelector("label[for=id_fgpu]").textContent = device;
    document.querySelector("label[for=id_gpu_memory]").textContent = gettext("%(device)s memory", { device });
  }
  const bytes = group() ? amountOf("gpu_memory") : 0;
  if (bytes > 0) {
    const words = memoryText(bytes, milli || 0, group());
    box.hidden = !words;
    document.getElementById("gpu-words").textContent = gettext("%(size)s: %(shares)s", { size: write.size(bytes), shares: words });
    document.getElementById("gpu-cells").hidden = true;
    return;
  }
  const text = group() ? shareText(milli, group()) : "";
  box.hidden = !text;
  if (!text) return;
  const models = [...new Set(group().gpus.map((gpu) => gpu.name))].join(", ");
  document.getElementById("gpu-words").textContent = gettext("%(fgpu)s fGPU = %(share)s (%(models)s)", {
    fgpu: write.fgpu(milli),
    share: text,
    models,
  });
  document.getElementById("gpu-cells").hidden = false;
  document.getElementById("gpu-cells").replaceChildren(
    ...cellsOf(milli, group().perGpu).map((part) => {
      const cell = document.createElement("span");
      cell.append(document.createElement("span"));
      cell.firstChild.style.inlineSize = `${100 * part}%`;
      return cell;
    }),
  );
}

function showGuarantee() {
  const box = document.getElementById("cpu-words");
  const cores = amountOf("cpu");
  box.hidden = !(group()?.coreMilli < 1000 && cores > 0);
  if (box.hidden) return;
  box.textContent = ngettext(
    "%(guaranteed)s of %(count)s core guaranteed, the rest while others leave it idle",
    "%(guaranteed)s of %(count)s cores guaranteed, the rest while others leave it idle",
    cores,
    { guaranteed: write.fgpu(cores * group().coreMilli) },
  );
}

// Says what all members of a cluster have together.
function showCluster() {
  const box = document.getElementById("cluster-words");
  const size = amountOf("cluster_size");
  const each = ["cpu", "memory", "fgpu"].map(amountOf);
  box.hidden = !(size > 1 && each.every((amount) => amount >= 0));
  if (box.hidden) return;
  const readers = { cpu: Number, memory: read.size, fgpu: read.fgpu };
  const main = Object.entries(readers).map(([name, amount], place) => {
    const text = field(`cluster_main_${name}`).value.trim();
    return text ? amount(text) : each[place];
  });
  const words = ([cores, memory, fgpu]) => ngettext("%(count)s core, %(memory)s RAM, %(fgpu)s fGPU", "%(count)s cores, %(memory)s RAM, %(fgpu)s fGPU", cores, { memory: write.size(memory), fgpu: write.fgpu(fgpu) });
  const values = { size, each: words(each), together: words(each.map((amount, place) => main[place] + (size - 1) * amount)) };
  const isAlike = each.every((amount, place) => amount === main[place]);
  box.textContent = isAlike
    ? gettext("%(size)s × (%(each)s) = %(together)s", values)
    : gettext("main1 (%(main)s) + %(others)s × (%(each)s) = %(together)s", { ...values, main: words(main), others: size - 1 });
}

// Fills in the words of the review page, which the server leaves to this page's facts.
export function wordShares(root) {
  for (const each of root.querySelectorAll("[data-gpu-words]")) {
    const text = group() ? shareText(Number(each.dataset.gpuWords), group()) : "";
    each.textContent = text && `= ${text}`;
  }
  for (const each of root.querySelectorAll("[data-gpu-memory]")) {
    each.textContent = group() ? memoryText(Number(each.dataset.gpuMemory), Number(each.dataset.least), group()) : "";
  }
}

export function showAmounts() {
  offerPresets();
  leaveRefused();
  const chosen = preset();
  if (chosen) {
    for (const name of AMOUNTS) field(name).value = write[kindOf(name)](chosen[name]);
    field("gpu_memory").value = chosen.gpu_memory ? write.size(chosen.gpu_memory) : "";
  }
  fitSliders();
  showGuarantee();
  showShare();
  showCluster();
}

// Takes an amount that the advice proposes: the others stay as they are.
export function choose(name, value) {
  if (name !== "resource_group") custom.checked = true;
  field(name).value = value;
  changed(field(name));
}

// GPU memory stands in place of the share, which is kept while the memory is: then it counts again.
function replaceShare() {
  const share = field("fgpu");
  const isAsked = field("gpu_memory").value.trim() !== "";
  if (isAsked === "replaced" in share.dataset) return;
  if (isAsked) {
    share.dataset.replaced = share.value;
    share.value = "0";
  } else {
    share.value = share.dataset.replaced;
    delete share.dataset.replaced;
  }
}

export function bindAmounts() {
  if (field("gpu_memory").value.trim()) field("fgpu").dataset.replaced = "0"; // as it was asked for before
  form.addEventListener("input", (event) => {
    if (event.target === field("gpu_memory")) replaceShare();
    if (!event.target.matches("[data-slider]")) return;
    const box = event.target.closest("[data-amount]");
    const name = box.dataset.amount;
    takeSlider(box, largestOf(name));
    if (name === "memory" && read.size(field("shared_memory").value) > amountOf("memory")) {
      field("shared_memory").value = field("memory").value; // it is part of the memory
    }
  });
}
