// The scripts' texts in ko: `make messages` writes this file.
globalThis.translations = { plural: (n) => Number(0), texts: {} };
