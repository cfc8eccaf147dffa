/** Asks for the API key; it is kept in this tab alone. */

import { h } from "./element.js";

/**
 * @param {boolean} refused the last one was not taken
 * @returns {Promise<string>}
 */
export function askKey(refused) {
  return new Promise((resolve) => {
    const field = h("input", {
      id: "key-field",
      type: "password",
      autocomplete: "off",
      required: true,
      spellcheck: "false",
    });
    const form = h(
      "form",
      {},
      h("h2", { id: "key-title" }, "An API key, please"),
      h(
        "p",
        { role: refused ? "alert" : null },
        refused
          ? "That key was not taken. Is it whole, and not revoked?"
          : "This house lets in only those who have a key. The operator makes one with “hugginggpt keys create”.",
      ),
      h("label", { for: "key-field" }, "API key"),
      field,
      h("p.quiet", {}, "It is kept in this tab only, and forgotten when you close it."),
      h("button.primary", { type: "submit" }, "Go on"),
    );
    const dialog = h("dialog.key", { "aria-labelledby": "key-title", cancel: (event) => event.preventDefault() }, form);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      dialog.remove();
      resolve(field.value.trim());
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
