// What a number of fGPU is of the GPUs of a group, in words and as a picture. No page here.
import { gettext, ngettext } from "#i18n";
import { write } from "#amounts";

const MAX_CELLS = 8;
const plain = (number) => String(Math.round(number * 100) / 100);

// Returns the parts of the GPUs that `milli` milli-fGPU fill, each from 0 to 1: whole ones, then a part. At most eight.
export function cellsOf(milli, perGpu) {
  const whole = 1000 * perGpu;
  const cells = Array.from({ length: Math.min(MAX_CELLS, Math.floor(milli / whole)) }, () => 1);
  if (milli % whole && cells.length < MAX_CELLS) cells.push((milli % whole) / whole);
  return cells;
}

// Returns what bytes of GPU memory are on each kind of a group's GPUs, and at least `least` milli-fGPU of it; "" without GPUs.
export function memoryText(bytes, least, { perGpu, gpus: kinds }) {
  if (!kinds.length || !(bytes > 0)) return "";
  const names = (some) => [...new Set(some.map((kind) => kind.name))].join(", ");
  const parts = kinds
    .filter((kind) => kind.memory >= bytes)
    .map((kind) => {
      const share = kind.isWhole ? 1000 * perGpu : Math.max(least, Math.ceil((bytes * 1000 * perGpu) / kind.memory));
      return gettext("%(fgpu)s fGPU of %(name)s (%(memory)s)", { fgpu: write.fgpu(share), name: kind.name, memory: write.size(kind.memory) });
    });
  const small = kinds.filter((kind) => kind.memory < bytes);
  if (small.length) parts.push(gettext("does not fit %(names)s", { names: names(small) }));
  return parts.join(" · ");
}

// Returns what `milli` milli-fGPU are of GPUs, or "" where the group has none. `kinds` are its GPUs as {memory}, in
// bytes, 0 where that is not known; `device` is what one is called. Of those that nothing `divides` there is no part.
export function shareText(milli, { perGpu, device, divides, gpus: kinds }) {
  const sizes = [...new Set(kinds.map((kind) => kind.memory))];
  if (!sizes.length || !(milli > 0)) return "";
  const whole = Math.floor(milli / (1000 * perGpu));
  const part = (milli % (1000 * perGpu)) / (1000 * perGpu);
  if (!part) {
    const memory = sizes.map(write.size).join(" / ");
    if (!sizes.every(Boolean)) return ngettext("1 whole %(device)s", "%(count)s whole %(device)ss", whole, { device });
    return ngettext("1 whole %(device)s with %(memory)s", "%(count)s whole %(device)ss with %(memory)s each", whole, { device, memory });
  }
  if (!divides) return "";
  const values = {
    percent: plain(100 * part),
    memory: sizes.map((size) => gettext("%(share)s of %(size)s", { share: write.size(size * part), size: write.size(size) })).join(" / "),
  };
  if (!whole) return gettext("%(memory)s of a GPU, %(percent)s %% of its time", values);
  return ngettext(
    "1 whole GPU and %(memory)s of another, %(percent)s %% of its time",
    "%(count)s whole GPUs and %(memory)s of another, %(percent)s %% of its time",
    whole,
    values,
  );
}
