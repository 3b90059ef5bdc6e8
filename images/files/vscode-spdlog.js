// In place of the native module, which only a compiler could build: VS Code keeps no log files.
const ignore = () => {};
const logger = new Proxy({}, { get: (_, name) => (name === "then" ? undefined : ignore) });

exports.version = "";
exports.setLevel = ignore;
exports.setFlushOn = ignore;
exports.createRotatingLogger = async () => logger;
exports.createAsyncRotatingLogger = async () => logger;
