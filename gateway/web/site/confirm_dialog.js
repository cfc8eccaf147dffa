/** Dialog that asks before something is deleted. */

import { h } from "./element.js";
import { notice } from "./notice.js";

/**
 * @param {string} title
 * @param {string} text what is deleted with it
 * @param {() => Promise<void>} remove
 */
export function confirmDeletion(title, text, remove) {
  const problems = h("div");
  const submit = h("button.primary.danger", { type: "submit" }, "Delete");
  const cancel = h("button.quiet", { type: "button", click: () => dialog.close() }, "Cancel");
  const form = h(
    "form",
    { submit: (/** @type {Event} */ event) => (event.preventDefault(), run()) },
    h("h2", { id: "confirm-title" }, title),
    h("p", {}, text),
    problems,
    h("div.row", {}, submit, cancel),
  );
  const dialog = /** @type {HTMLDialogElement} */ (
    h("dialog.confirm", { "aria-labelledby": "confirm-title", close: () => dialog.remove() }, form)
  );
  const run = async () => {
    submit.setAttribute("disabled", "");
    try {
      await remove();
      dialog.close();
    } catch (problem) {
      problems.replaceChildren(notice(/** @type {import("./api.js").Problem} */ (problem)));
      submit.removeAttribute("disabled");
    }
  };
  document.body.append(dialog);
  dialog.showModal();
  cancel.focus();
}
