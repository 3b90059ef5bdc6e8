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

// Returns what `milli` milli-fGPU are of GPUs, or "" where the group has none. `kinds` are its GPUs as {memory}, in bytes.
export function shareText(milli, { perGpu, gpus: kinds }) {
  const sizes = [...new Set(kinds.map((kind) => kind.memory))];
  if (!sizes.length || !(milli > 0)) return "";
  const whole = Math.floor(milli / (1000 * perGpu));
  const part = (milli % (1000 * perGpu)) / (1000 * perGpu);
  if (!part) {
    const memory = sizes.map(write.size).join(" / ");
    return ngettext("1 whole GPU with %(memory)s", "%(count)s whole GPUs with %(memory)s each", whole, { memory });
  }
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
