// What `make lint` checks in the JavaScript of the pages (static/js) and its tests (tests/js).
import js from "@eslint/js";
import globals from "globals";

export default [
  js.configs.recommended,
  {
    rules: {
      "consistent-return": "error",
      eqeqeq: "error",
      "no-shadow": "error",
      "no-use-before-define": ["error", { functions: false, variables: false }],
      "no-var": "error",
      "object-shorthand": "error",
      "prefer-const": "error",
      "prefer-template": "error",
      complexity: ["error", 13], // counts each ?. and ??, too,
      "max-lines": ["error", 400],
      "max-lines-per-function": ["error", 50],
    },
  },
  { files: ["static/js/*.js"], languageOptions: { globals: globals.browser } },
  {
    // Plain scripts: the first three run before the page is drawn, the last on an admin page without modules.
    files: ["static/js/theme.js", "static/js/early-clicks.js", "static/js/terminal-trouble.js", "static/js/simulation.js"],
    languageOptions: { sourceType: "script", globals: { uPlot: "readonly" } },
  },
  { files: ["static/js/translations/*.js"], rules: { "max-lines": "off" } }, // written by `make messages`
  { files: ["tests/js/*.js"], languageOptions: { globals: globals.node } },
];
