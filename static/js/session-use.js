// What a running session uses of what it holds, as percent of its allocation and as text. No page here.
const GIB = 2 ** 30;

function percent(used, held) {
  return held > 0 ? Math.min(100, (100 * used) / held) : 0;
}

function gib(bytes) {
  return (bytes / GIB).toFixed(bytes < 10 * GIB ? 2 : 1);
}

// Returns {percent, figure} by name for `use`, as the server sends it: milli-cores, bytes, percent of the devices' time,
// bytes of GPU memory, each null where it is not known. `held` is the allocation: cores, bytes, thousandths of its
// devices' time, bytes of GPU memory.
export function usesOf([cpu, memory, busy, gpuMemory], held) {
  const found = {};
  if (cpu !== null) found.cpu = { percent: percent(cpu / 1000, held.cpu), figure: (cpu / 1000).toFixed(1) };
  if (memory !== null) found.memory = { percent: percent(memory, held.memory), figure: gib(memory) };
  if (busy !== null && held.gpu) found.gpu = { percent: percent(10 * busy, held.gpu), figure: String(Math.round(percent(10 * busy, held.gpu))) };
  if (gpuMemory !== null && held.gpuMemory) found["gpu-memory"] = { percent: percent(gpuMemory, held.gpuMemory), figure: gib(gpuMemory) };
  return found;
}
