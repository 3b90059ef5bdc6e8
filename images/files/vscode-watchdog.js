// In place of the native module, which only a compiler could build: ends this process soon after another has ended.
const PERIOD_MS = 3000;

exports.start = (pid) => {
  setInterval(() => {
    try {
      process.kill(pid, 0);
    } catch {
      process.exit(87);
    }
  }, PERIOD_MS).unref();
};
exports.exit = (code) => process.exit(code || 0);
