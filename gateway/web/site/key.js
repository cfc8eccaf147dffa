/** Dialog that asks for the API key, which is stored in this tab only. */

import { h } from "./element.js";

/**
 * @param {boolean} refused whether the last key was rejected
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
      h("h2", { id: "key-title" }, "API key required"),
      h(
        "p",
        { role: refused ? "alert" : null },
        refused
          ? "The key was rejected. Check that it is complete and not revoked."
          : "This gateway requires an API key. An operator creates one with “hugginggpt keys create”.",
      ),
      h("label", { for: "key-field" }, "API key"),
      field,
      h("p.quiet", {}, "The key is stored in this tab only, until you close it."),
      h("button.primary", { type: "submit" }, "Continue"),
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
