// Amounts of the launch form as people write them, in the units of its facts: cores, bytes, milli-fGPU. No page here.
export const MIB = 2 ** 20;
export const GIB = 2 ** 30;
const UNITS = { b: 1, k: 1024, m: MIB, g: GIB, t: 1024 * GIB }; // without a unit it is no size, as on the server
const LEAST_MEMORY = 64 * MIB;
const LABELS = { cpu: "CPU", memory: "RAM", fgpu: "fGPU" };

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

// Returns an amount of this kind as text.
export const write = {
  whole: String,
  size: (bytes) => (bytes >= GIB ? `${plain(bytes / GIB)} GiB` : `${plain(bytes / MIB)} MiB`),
  fgpu: (milli) => plain(milli / 1000),
};

// Kinds of the amounts that a session has limits for.
const KINDS = { cpu: "whole", memory: "size", fgpu: "fgpu" };

// Returns the steps of an amount's slider and what they stand for; sizes move in half powers of two, so that MiB and
// TiB are both near.
export function scaleOf(name, largest) {
  if (name === "cpu" || name === "count") return { from: 1, to: Math.max(1, largest), toAmount: (x) => x, fromAmount: (x) => x };
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
  if (name === "fgpu" && group) parts.push(`1 fGPU is 1/${group.perGpu} of a GPU here`);
  if (name in (group ?? {})) parts.push(`up to ${words(largest)} per session`);
  if (left !== undefined && left !== null) parts.push(`${words(left)} left in your policy`);
  if (least && !(name === "cpu" && least === 1) && !(name === "memory" && least <= LEAST_MEMORY)) parts.push(`this environment needs ${words(least)}`);
  return parts.join(" · ");
}

// Returns what is ordered in one line.
export function summary({ environment, version, place, cpu, memory, shared, fgpu, count }) {
  const parts = [`${environment} ${version}`.trim(), `${cpu} core${cpu === 1 ? "" : "s"}`, `${write.size(memory)} RAM`, `${write.size(shared)} shared`];
  if (fgpu) parts.push(`${write.fgpu(fgpu)} fGPU`);
  return `${count === 1 ? "" : `${count} × `}${parts.join(" · ")}, in ${place}`;
}

// Returns what speaks against the amounts of one session at once, or ""; the server has the last word.
export function objection(amounts, { least = {}, group = {} }) {
  const names = Object.keys(LABELS);
  const short = names.filter((name) => amounts[name] < least[name]);
  if (short.length) return `This environment needs at least ${short.map((name) => `${write[KINDS[name]](least[name])} ${LABELS[name]}`).join(", ")}.`;
  const never = names.filter((name) => amounts[name] > (group[name] ?? Infinity)).map((name) => LABELS[name]);
  if (never.length) return `More than one session can have here (${never.join(", ")}).`;
  return "";
}
