// Amounts of the launch form as people write them, in the units of its facts: cores, bytes, milli-fGPU. No page here.
import { gettext, ngettext } from "#i18n";

export const MIB = 2 ** 20;
export const GIB = 2 ** 30;
const UNITS = { b: 1, k: 1024, m: MIB, g: GIB, t: 1024 * GIB }; // without a unit it is no size, as on the server
const LEAST_MEMORY = 64 * MIB;

// Returns the amount that a text of this kind stands for, or NaN.
export const read = {
  whole: (text) => (/^\d+$/.test(text.trim()) ? Number(text) : NaN),
  size(text) {
    const match = /^(\d+(?:\.\d+)?)\s*(?:([kmgt])(?:i?b)?|b)$/i.exec(text.trim());
    return match ? Math.floor(Number(match[1]) * UNITS[(match[2] ?? "b").toLowerCase()]) : NaN;
  },
  fgpu: (text) => (text.trim() === "" ? 0 : Math.round(Number(text) * 1000)),
};

const plain = (number) => String(Math.round(number * 100) / 100);

// Returns an amount of this kind as text; sizes as `resources.amounts.units.size_text` writes them.
export const write = {
  whole: String,
  size(bytes) {
    const unit = ["TiB", "GiB", "MiB", "KiB"].find((name) => bytes >= UNITS[name[0].toLowerCase()]);
    return unit ? `${Math.floor((100 * bytes) / UNITS[unit[0].toLowerCase()]) / 100} ${unit}` : `${Math.floor(bytes)} B`;
  },
  cores: (milli) => plain(milli / 1000),
  fgpu: (milli) => plain(milli / 1000),
};

// Returns the steps of an amount's slider and what they stand for; sizes move in half powers of two, so that MiB and
// TiB are both near.
export function scaleOf(name, largest) {
  if (["cpu", "count", "cluster_size"].includes(name)) return { from: 1, to: Math.max(1, largest), toAmount: (x) => x, fromAmount: (x) => x };
  if (name === "fgpu") return { from: 0, to: Math.max(0, largest / 50), toAmount: (x) => x * 50, fromAmount: (x) => x / 50 };
  const first = Math.log2(LEAST_MEMORY) * 2;
  return {
    from: first,
    to: Math.max(first, Math.floor(Math.log2(Math.max(largest, LEAST_MEMORY)) * 2)),
    toAmount: (x) => Math.round(2 ** (x / 2) / LEAST_MEMORY) * LEAST_MEMORY,
    fromAmount: (x) => Math.log2(x) * 2,
  };
}

// Returns the hint below an amount. `group` has the limits of one session there (or is undefined), `least` is what the
// environment needs of it, `left` what the policy still allows (null or undefined: no limit).
export function hint(name, kind, { group, largest, least, left }) {
  const words = write[kind];
  const parts = [];
  if (name === "count") {
    parts.push(gettext("up to %(most)s at once", { most: words(largest) }));
    if (typeof left === "number") parts.push(gettext("your policy lets %(left)s more run now, the others wait", { left: words(left) }));
    return parts.join(" · ");
  }
  if (name === "fgpu" && group) parts.push(ngettext("1 fGPU is a whole %(device)s here", "1 fGPU is 1/%(count)s of one %(device)s here", group.perGpu, { device: group.device }));
  if (name in (group ?? {})) parts.push(gettext("up to %(most)s per session", { most: words(largest) }));
  if (typeof left === "number") parts.push(gettext("%(left)s left in your policy", { left: words(left) }));
  if (least && !(name === "cpu" && least === 1) && !(name === "memory" && least <= LEAST_MEMORY)) {
    parts.push(gettext("this environment needs %(least)s", { least: words(least) }));
  }
  return parts.join(" · ");
}

// Returns what the environment needs on one GPU, from bytes; "" for nothing.
export function gpuMemoryHint(least) {
  return least ? gettext("this environment needs %(size)s of GPU memory", { size: write.size(least) }) : "";
}
