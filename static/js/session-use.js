// What a running session uses of what it holds, as percent of its allocation and as text. No page here.
import { write } from "#amounts";

function percent(used, held) {
  return held > 0 ? Math.min(100, (100 * used) / held) : 0;
}

// Returns {percent, figure} by name for `use`, as the server sends it: milli-cores, bytes, percent of the devices' time,
// bytes of GPU memory, each null where it is not known. `held` is the allocation: cores, bytes, thousandths of its
// devices' time, bytes of GPU memory.
export function usesOf([cpu, memory, busy, gpuMemory], held) {
  const found = {};
  if (cpu !== null) found.cpu = { percent: percent(cpu / 1000, held.cpu), figure: write.cores(cpu) };
  if (memory !== null) found.memory = { percent: percent(memory, held.memory), figure: write.size(memory) };
  if (busy !== null && held.gpu) found.gpu = { percent: percent(10 * busy, held.gpu), figure: `${Math.round(percent(10 * busy, held.gpu))} %` };
  if (gpuMemory !== null && held.gpuMemory) found["gpu-memory"] = { percent: percent(gpuMemory, held.gpuMemory), figure: write.size(gpuMemory) };
  return found;
}
