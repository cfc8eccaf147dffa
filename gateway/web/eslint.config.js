// ESLint's recommended rules, and bans on what the page's content security policy forbids.
import js from "@eslint/js";
import globals from "globals";

const MARKUP = "The page creates elements with h() and svg(); nothing parses markup.";

export default [
  { ignores: ["node_modules/"] },
  js.configs.recommended,
  {
    files: ["site/*.js", "types.js"],
    languageOptions: { ecmaVersion: 2024, sourceType: "module", globals: globals.browser },
    rules: {
      eqeqeq: "error",
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-new-func": "error",
      "no-shadow": "error",
      "no-unused-vars": ["error", { argsIgnorePattern: "^_", ignoreRestSiblings: true }],
      "no-var": "error",
      "prefer-const": "error",
      "no-restricted-properties": [
        "error",
        ...["innerHTML", "outerHTML", "insertAdjacentHTML"].map((property) => ({ property, message: MARKUP })),
        { object: "document", property: "write", message: MARKUP },
      ],
    },
  },
  { files: ["site/theme_init.js"], languageOptions: { sourceType: "script" } },
  { files: ["tests/*.js", "eslint.config.js"], languageOptions: { globals: globals.node } },
];
